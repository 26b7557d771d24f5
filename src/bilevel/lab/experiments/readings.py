"""What judges read from the curves of a figure: how far runs fall, and at which cost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bilevel.lab.curves import Curve, lowest, spent_until
from bilevel.lab.experiments.verdicts import Evidence
from bilevel.lab.quantities import SAMPLES

COSTS = {"CPU seconds": ("seconds",), "samples": SAMPLES}
Read = Callable[[Curve], float]


def pairs(evidence: Evidence, one: str, other: str) -> list[tuple[Curve, Curve]]:
    """The runs of two methods, by seed; none if one of the two was left out."""
    curves = evidence.curves
    if not {one, other} <= curves.keys():
        return []
    return list(zip(curves[one], curves[other], strict=True))


def falls(evidence: Evidence, metric: str) -> list[float]:
    """For each seed, from the highest start to the lowest value that any run reached."""
    return [start - low for start, low in extents(evidence, metric)]


def levels(evidence: Evidence, metric: str, share: float) -> list[float]:
    """What a run has to reach for each seed to have made this share of the fall."""
    return [start - share * (start - low) for start, low in extents(evidence, metric)]


def extents(evidence: Evidence, metric: str) -> list[tuple[float, float]]:
    """The highest start and the lowest value, for each seed."""
    seeds = list(zip(*evidence.curves.values(), strict=True))
    starts = [max(float(curve.column(metric)[0]) for curve in runs) for runs in seeds]
    return [
        (start, min(lowest(c, metric) for c in runs))
        for start, runs in zip(starts, seeds, strict=True)
    ]


def reached(evidence: Evidence, label: str, metric: str, cost: str, share: float) -> str:
    """The median over the seeds that arrived, in words."""
    if label not in evidence.curves:
        return f"{label} was left out"
    goals, prices = levels(evidence, metric, share), COSTS[cost]
    runs = zip(evidence.curves[label], goals, strict=True)
    found = [spent_until(curve, metric, at, prices) for curve, at in runs]
    arrived = [price for price, is_there in found if is_there]
    if not arrived:
        return f"{label} never"
    share_of_seeds = "" if len(arrived) == len(found) else f" ({len(arrived)} of {len(found)})"
    return f"{label} {np.median(arrived):.3g}{share_of_seeds}"


def means(evidence: Evidence, what: str, labels: tuple[str, ...], read: Read) -> str:
    """The means over the seeds, in words."""
    known = evidence.curves
    return f"{what}: " + ", ".join(
        f"{label} {float(np.mean([read(curve) for curve in known[label]])):.4g}"
        if label in known
        else f"{label} was left out"
        for label in labels
    )


def words(metric: str) -> str:
    """A metric as it stands in a sentence."""
    return metric.replace("_", " ")
