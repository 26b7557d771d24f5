"""Directions carried from step to step by their change on one batch: SARAH, STORM, PAGE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

Points = Mapping[str, Tensor]
Evaluate = Callable[[Points], Mapping[str, Tensor]]


def carry(points: Points, evaluate: Evaluate, keep: float) -> dict[str, Tensor]:
    """d(z) ≈ d_B(z) + keep · (d − d_B(z′)), for each direction d that `evaluate` gives on rows B.

    z are the points now and z′ those of the step before; on one batch for both, their noise cancels
    in the difference. keep = 1 is SARAH (SPIDER), keep = 1 − η is STORM with the momentum η, and
    keep = 0 starts afresh, for half the price.

    Args:
        points: of the state, with what `started` has put and `remembered` keeps there.
        evaluate: the directions at given points, by name, on the rows of this step.
        keep: how much of the carried direction stays.

    Reference: Nguyen, Liu, Scheinberg & Takáč, ICML 2017 (SARAH); Fang, Li, Lin & Zhang,
    NeurIPS 2018 (SPIDER); Cutkosky & Orabona, NeurIPS 2019 (STORM).
    """
    now = dict(evaluate(points))
    if keep == 0:
        return now
    end = len(" before")
    there = {name[:-end]: p for name, p in points.items() if name.endswith(" before")}
    for name, before in evaluate(there).items():
        now[name] = now[name] + keep * (points[f"d_{name}"] - before)
    return now


def started(points: Points, carried: Iterable[str]) -> dict[str, Tensor]:
    """Points before the first step, with those of a step before and directions of zero."""
    return {**points, **remembered(points, {n: torch.zeros_like(points[n]) for n in carried})}


def remembered(points: Points, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the next step needs: where these directions were taken, and the directions."""
    plain = {n: p for n, p in points.items() if " " not in n and not n.startswith("d_")}
    before = {f"{name} before": point for name, point in plain.items()}
    return {**before, **{f"d_{name}": d for name, d in directions.items()}}
