"""Curves as lines of a table."""

from __future__ import annotations

import statistics

from scaling.fits import Exponent, upper_half
from scaling.measuring import Curve

COLUMNS = (
    "size",
    "data",
    "algorithm",
    "from",
    "to",
    "seconds at the largest",
    "time, all sizes",
    "time, upper half",
    "at most",
    "MB at the largest",
    "memory, upper half",
    "at most",
    "verdict",
)
LITTLE = 2_000_000  # bytes: below that, the noise of the measurement shapes the curve


def table(curves: list[Curve]) -> str:
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    return "\n".join([*lines, *(_line(_cells(curve)) for curve in curves)])


def time_exponents(curve: Curve) -> tuple[Exponent, Exponent]:
    """Over all sizes, and over the upper half of them."""
    sizes, larger = curve.study.sizes, [list(upper_half(each)) for each in curve.seconds]
    return Exponent.of(sizes, curve.seconds), Exponent.of(upper_half(sizes), larger)


def memory_exponent(curve: Curve) -> Exponent | None:
    """Over the upper half; None if it cannot be told."""
    if not curve.memory or max(curve.memory) < LITTLE:
        return None
    larger = [max(1, each) for each in upper_half(curve.memory)]
    return Exponent.of(upper_half(curve.study.sizes), [larger])


def verdict(curve: Curve) -> str:
    """Which exponents are above what they may be."""
    study, memory = curve.study, memory_exponent(curve)
    faults = [] if time_exponents(curve)[1].within(study.time_bound) else ["time"]
    if memory is not None and not memory.within(study.memory_bound):
        faults.append("memory")
    if not faults:
        return "within"
    return f"{' and '.join(faults)} {'grows' if len(faults) == 1 else 'grow'} faster"


def around_steps(curves: list[Curve]) -> str:
    """Where the time of a step is as x grows: in `algorithm.step`, and around it."""
    long = [curve for curve in curves if curve.study.axis == "weights"]
    if not long:
        return ""
    head = ["weights", *(f"{c.study.method}: {part}" for c in long for part in ("step", "around"))]
    lines = [_line(head), _line(["---"] * len(head))]
    for number, size in enumerate(long[0].study.sizes):
        cells = [cell for curve in long for cell in _parts(curve, number)]
        lines.append(_line([f"{size:,}", *cells]))
    title = "Milliseconds of a step with batches of one size, as x grows, in `algorithm.step` and "
    return "\n".join([f"{title}around it in the loop:", "", *lines])


def _parts(curve: Curve, number: int) -> tuple[str, str]:
    inside = statistics.median(each[number] for each in curve.inside)
    whole = statistics.median(each[number] for each in curve.seconds)
    return f"{1e3 * inside:.2f}", f"{1e3 * (whole - inside):.2f}"


def _cells(curve: Curve) -> list[str]:
    study = curve.study
    every, upper = time_exponents(curve)
    return [
        study.axis,
        study.data,
        study.method,
        f"{study.sizes[0]:,}",
        f"{study.sizes[-1]:,}",
        f"{statistics.median(each[-1] for each in curve.seconds):.2g}",
        str(every),
        str(upper),
        f"{study.time_bound:g}",
        f"{curve.memory[-1] / 1e6:.1f}" if curve.memory else "",
        _memory(curve),
        f"{study.memory_bound:g}",
        verdict(curve),
    ]


def _memory(curve: Curve) -> str:
    if not curve.memory:
        return "not told"
    exponent = memory_exponent(curve)
    return "too little to tell" if exponent is None else str(exponent)


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
