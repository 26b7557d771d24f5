"""Short runs with a checkpoint after each step, and what it means that two are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import bilevel
from bilevel.algorithms import AIDBiO

from ...truth.quadratics import noisy_sum

GOOD = AIDBiO(inner_steps=20, inner_lr=0.4, cg_steps=5, outer_lr=0.3)


class PowerFailureError(Exception):
    """Nothing that the code expects."""


def fail_at(step: int) -> Callable[[bilevel.Progress], None]:
    def callback(progress: bilevel.Progress) -> None:
        if progress.record.step == step:
            raise PowerFailureError

    return callback


def plain(history: Any) -> list[dict[str, Any]]:
    return [{**dict(record), "seconds": 0} for record in history]


def assert_same(one: bilevel.Result, two: bilevel.Result) -> None:
    """The same bits, in all but the seconds."""
    points, others = one.state.points, two.state.points
    assert points.keys() == others.keys()
    assert all(torch.equal(points[name], others[name]) for name in points)
    assert same(one.x, two.x)
    assert same(one.y, two.y)
    assert plain(one.history) == plain(two.history)
    assert (one.counts, one.status, one.message) == (two.counts, two.status, two.message)


def same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)


def kept(folder: Path, problem: bilevel.Problem | None = None, **changes: Any) -> bilevel.Result:
    """A short run in a folder, with a checkpoint after each step."""
    usual: dict[str, Any] = {"steps": 6, "checkpoint": folder, "checkpoint_every": 0}
    given = {**usual, **changes}
    return bilevel.minimize(
        problem or noisy_sum(20).problem(), given.pop("algorithm", GOOD), **given
    )
