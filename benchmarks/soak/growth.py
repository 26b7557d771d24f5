"""What grows along a run, besides its history."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from bilevel.algorithms import Algorithm
from bilevel.errors import UserError
from bilevel.problem.problem import Problem
from bilevel.runs.minimize import minimize
from bilevel.runs.progress import Callback, Progress
from bilevel.runs.result import HistoryRecord, Status

_SAMPLES = 60
_PROC = Path("/proc/self")
_CHECKPOINT_SECONDS = 0.05
# What may come and go by chance, from the second quarter to the last.
_BYTES, _OBJECTS, _OBJECTS_A_STEP, _HANDLES = 6 * 2**20, 10.0, 0.2, 0.5


class Watch:
    """A callback that takes samples of what this process holds, at even distances.

    Use it as a context manager: inside, the garbage collector looks at new objects only.
    """

    def __init__(self, steps: int) -> None:
        self._every = max(1, steps // _SAMPLES)
        # Arrays of numbers: samples that are objects would be among the objects.
        self._samples = {name: array("d") for name in ("steps", "resident", "objects", "handles")}

    def __enter__(self) -> Watch:
        gc.collect()
        gc.freeze()
        _give_back_freed_memory()
        return self

    def __exit__(self, *_: object) -> None:
        gc.unfreeze()

    def __call__(self, progress: Progress) -> None:
        if progress.record.step % self._every:
            return
        gc.collect()
        pages = int((_PROC / "statm").read_text("ascii").split()[1])
        now = {
            "steps": progress.record.step,
            "resident": pages * os.sysconf("SC_PAGESIZE"),
            "objects": len(gc.get_objects()),
            "handles": len(os.listdir(_PROC / "fd")),
        }
        for name, value in now.items():
            self._samples[name].append(value)

    def rises(self) -> dict[str, float]:
        """From the second quarter's mean to the last's."""
        count = len(self._samples["steps"]) // 4
        return {
            name: fmean(values[-count:]) - fmean(values[count : 2 * count])
            for name, values in self._samples.items()
            if count
        }


def _give_back_freed_memory() -> None:
    """What an earlier run has left to the allocator would hide a leak of that size."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True)
class Growth:
    """What was held in the last quarter of a run and not in the second, besides the history.

    Args:
        status: how the run ended.
        steps: that lie between the two quarters' middles.
        resident: bytes.
        objects: of Python, as its garbage collector counts them.
        handles: open files.
        history: bytes that a step's record takes.
    """

    status: Status
    steps: float
    resident: float
    objects: float
    handles: float
    history: float

    def leaks(self) -> list[str]:
        """What grows."""
        found = {
            "memory": self.resident > _BYTES,
            "objects": self.objects > max(_OBJECTS, _OBJECTS_A_STEP * self.steps),
            "file handles": self.handles > _HANDLES,
        }
        return [name for name, grows in found.items() if grows]


def growth(
    problem: Problem,
    algorithm: Algorithm,
    steps: int,
    callbacks: Iterable[Callback] = (),
    checkpoint: str | Path | None = None,
) -> Growth:
    """Run for so many steps, and see what grows.

    Raises:
        UserError: the system has no /proc.
    """
    if not _PROC.exists():
        raise UserError("memory and open files are read from /proc, which this system lacks")
    with Watch(steps) as watch:
        result = minimize(
            problem,
            algorithm,
            steps=steps,
            callbacks=[*callbacks, watch],
            evaluate_every=max(1, steps // _SAMPLES),
            checkpoint=checkpoint,
            checkpoint_every=_CHECKPOINT_SECONDS,
        )
    rise = watch.rises()
    if not rise:
        raise ValueError(f"too few steps to see growth, {result.state.step}: {result.message}")
    size, objects = held_by_a_record(result.history[-50:])
    return Growth(
        status=result.status,
        steps=rise["steps"],
        resident=rise["resident"] - size * rise["steps"],
        objects=rise["objects"] - objects * rise["steps"],
        handles=rise["handles"],
        history=size,
    )


def held_by_a_record(records: list[HistoryRecord]) -> tuple[float, float]:
    """How many bytes, and how many objects that the collector counts, one more record takes.

    Example:
        >>> from bilevel.oracles import Counts
        >>> def record(step):
        ...     return HistoryRecord(step, step / 7, None, step / 9, {}, Counts(hv=step), {})
        >>> size, objects = held_by_a_record([record(step) for step in range(1000, 1050)])
        >>> 300 < size < 1500, objects >= 1
        (True, True)
    """
    first, *others = records
    known = {id(item) for item in _reachable([first], set())}  # with what all records share
    items = list(_reachable(others, known))
    size = sum(map(sys.getsizeof, items)) / len(others)
    return size, sum(map(gc.is_tracked, items)) / len(others)


def _reachable(roots: list[Any], known: set[int]) -> Iterator[Any]:
    waiting = list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in known or isinstance(item, type | ModuleType):
            continue
        known.add(id(item))
        yield item
        waiting += gc.get_referents(item)
