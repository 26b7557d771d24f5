"""One process a contestant, asked in turn: nothing of one library is in another's way."""

from __future__ import annotations

import ctypes
import gc
import importlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from race.case import AnyCase, InaccurateError, relative_error
from race.contest import Contest, Contestant, Kind
from race.contestants.ladder import Warm

Run = Callable[[], Any]


@dataclass
class Score:
    """What was measured of one contestant.

    Args:
        seconds: of each run, an outer step.
        prepared: seconds for data, imports, choosing of tolerances and compilation: everything
            before the first timed run.
        memory: bytes at the peak of a run, beyond those before it; None if it cannot be told.
        error: the largest relative error of its answers; None for a floor.
        excuse: why it did not run.
    """

    contestant: Contestant
    seconds: list[float] = field(default_factory=list)
    prepared: float = 0.0
    memory: int | None = None
    error: float | None = None
    excuse: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else float("nan")

    def qualified(self, contest: Contest) -> bool:
        """Whether it has a right answer."""
        return bool(self.seconds) and self.error is not None and self.error <= contest.threshold


def race(
    contest: Contest, case: AnyCase, repeats: int, threads: int, patience: float = 600.0
) -> list[Score]:
    """All contestants of a contest, `repeats` rounds, each round in the same order."""
    case = case.with_truth(contest.truth(case))
    scores = [Score(contestant) for contestant in contest.contestants]
    lanes = []
    for score in scores:  # one after the other: preparation is timed as well
        lane = Lane(score, case, threads, patience)
        lane.hear("prepared")
        lanes.append(lane)
    for question in ["run"] * repeats + ["weigh"]:
        for lane in lanes:
            lane.ask(question)
    for lane in lanes:
        lane.close()
    return scores


class Lane:
    """A contestant's process, from outside."""

    def __init__(self, score: Score, case: AnyCase, threads: int, patience: float) -> None:
        self._score, self._patience = score, patience
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, score.contestant, case, threads), daemon=True
        )
        with _environment(threads):
            self._process.start()
        theirs.close()

    def ask(self, question: str) -> None:
        if not self._score.excuse:
            self._ours.send(question)
            self.hear(question)

    def hear(self, question: str) -> None:
        score = self._score
        try:
            if not self._ours.poll(self._patience):
                score.excuse = f"no answer in {self._patience:.0f} s"
                return
            answer = self._ours.recv()
        except (EOFError, ConnectionError):
            score.excuse = "its process died"
            return
        if isinstance(answer, str):
            score.excuse = answer
        elif question == "prepared":
            score.prepared = answer
        elif question == "weigh":
            score.memory = answer
        else:
            seconds, error = answer
            score.seconds.append(seconds)
            score.error = error if score.error is None else max(score.error, error)

    def close(self) -> None:
        self._ours.close()
        if self._score.excuse:
            self._process.terminate()
        self._process.join()


def serve(parent: Connection, contestant: Contestant, case: AnyCase, threads: int) -> None:
    """A contestant's process, from inside."""
    begun = time.perf_counter()
    try:
        _keep_to(threads)
        run = prepare(contestant, case)
        if not isinstance(run, Warm):
            run()  # compiles, warms up
        parent.send(time.perf_counter() - begun)
        while True:
            question = parent.recv()
            parent.send(weigh(run) if question == "weigh" else timed(run, case, contestant.kind))
    except EOFError:
        return
    except InaccurateError as failure:
        parent.send(str(failure))
    except ImportError as missing:
        parent.send(f"skipped: {missing}")
    except Exception as failure:
        first = (str(failure).splitlines() or [""])[0]
        parent.send(f"failed: {type(failure).__name__}: {first}")


def prepare(contestant: Contestant, case: AnyCase) -> Run:
    module, function = contestant.make.split(":")
    run: Run = getattr(importlib.import_module(module), function)(case)
    return run


def timed(run: Run, case: AnyCase, kind: Kind) -> tuple[float, float | None]:
    """Seconds an outer step, and the relative error of the answer."""
    gc.collect()
    begun = time.perf_counter()
    answer = run()
    seconds = (time.perf_counter() - begun) / max(1, len(case.rows))
    if kind is Kind.FLOOR:
        return seconds, None
    assert case.truth is not None
    return seconds, relative_error(answer, case.truth)


def weigh(run: Run) -> int | None:
    """Bytes at the peak beyond those before; the allocator first gives back what is free."""
    gc.collect()
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        ctypes.CDLL(None).malloc_trim(0)
        reset.write_text("5")  # the high-water mark starts anew
        before = _kilobytes(status, "VmRSS")
        run()
        return 1024 * (_kilobytes(status, "VmHWM") - before)
    except (OSError, AttributeError):
        return None


def _kilobytes(status: Path, name: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


def _keep_to(threads: int) -> None:
    """The same number of cores for everyone, also for libraries without such a setting."""
    if "sched_setaffinity" in dir(os):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class _environment:  # noqa: N801
    """The environment that a child is started with."""

    def __init__(self, threads: int) -> None:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self._set = dict.fromkeys(names, str(threads)) | {"JAX_PLATFORMS": "cpu"}

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in self._set}
        os.environ.update(self._set)

    def __exit__(self, *raised: object) -> None:
        for name, value in self._before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
