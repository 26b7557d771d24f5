"""Seconds and bytes of a case, by the public interface."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

import bilevel
from scaling.case import Case, Study

_MAPPED_ALONE = 2**16  # bytes
_M_MMAP_THRESHOLD = -3
_NEVER = 2**31


@dataclass
class Curve:
    """What was measured of a study.

    Args:
        seconds: by round and size; of the processor, with all that the loop does for a step.
        inside: the part of them in `algorithm.step`.
        memory: bytes by size at the peak of a run, beyond those before it; empty where the
            system does not tell.
    """

    study: Study
    seconds: list[list[float]] = field(default_factory=list)
    inside: list[list[float]] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


def measure(study: Study, rounds: int) -> Curve:
    """The time of every size, in rounds: what disturbs the machine disturbs all sizes."""
    curve, cases = Curve(study), [study.case(size) for size in study.sizes]
    gc.collect()
    for _ in range(rounds):
        found = [seconds(case) for case in cases]
        curve.seconds.append([whole for whole, _ in found])
        curve.inside.append([inside for _, inside in found])
    return curve


def seconds(case: Case, clock: Callable[[], float] = time.process_time) -> tuple[float, float]:
    """A step with all that the loop does for it, and the part of that in `algorithm.step`.

    `minimize` looks at its clock once to try it, and when a step begins and ends. The first step
    warms up, and the last one ends with an evaluation on all rows: they do not count.
    """
    looks: list[float] = []

    def look() -> float:
        looks.append(clock())
        return looks[-1]

    run(case, case.steps + 2, look)
    begun, ended = looks[1::2], looks[2::2]
    inside = sum(end - begin for begin, end in zip(begun[1:-1], ended[1:-1], strict=True))
    return (begun[-1] - begun[1]) / case.per, inside / case.per


def run(case: Case, steps: int, clock: Callable[[], float] = time.process_time) -> bilevel.Result:
    return bilevel.minimize(
        case.problem, case.algorithm, steps=steps, evaluate_every=_NEVER, clock=clock
    )


def weigh_all(studies: list[Study]) -> list[list[int]]:
    """The memory of each study at each size, in a process whose freed blocks go back at once."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=map_blocks_alone) as process:
        return list(process.map(weigh_study, studies))


def map_blocks_alone() -> None:
    """From now on every large block goes back to the system when it is freed.

    Else the allocator keeps some of them, and the peak tells of what was run before.
    """
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MAPPED_ALONE)


def weigh_study(study: Study) -> list[int]:
    found = [_weigh_case(study.case(size)) for size in study.sizes]
    return [size for size in found if size is not None]


def _weigh_case(case: Case) -> int | None:
    run(case, 2)  # what is compiled or taken by libraries at the first call does not count
    return weigh(partial(run, case, case.steps + 2))


def weigh(function: Callable[[], object]) -> int | None:
    """Bytes at the peak of a call beyond those before it; None where the system does not tell."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        before = _kilobytes("VmRSS")
        function()
        return 1024 * max(0, _kilobytes("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])
