"""SRBA, SPABA, FSLA, SUSTAIN and VRBO: exact expectations, fixed points, and where they get to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import FSLA, MRBO, SOBA, SPABA, SRBA, SUSTAIN, VRBO
from bilevel.algorithms.carried import carry
from bilevel.algorithms.contract import State
from bilevel.oracles import View, make

from ..truth.dense_truth import relative
from ..truth.quadratics import Quadratic, noisy_sum

ROWS = 8
COUPLED = {"inner_lr": 0.1, "outer_lr": 0.1}


class Drawn:
    """Streams that give the rows, the coin and the length that they are told."""

    def __init__(
        self, inner: int = 0, outer: int = 0, fresh: bool = False, length: int = 0
    ) -> None:
        self._rows = {"outer": torch.tensor([outer])}
        self._inner, self._fresh, self._length = torch.tensor([inner]), fresh, length

    def rows(self, role: str, size: int | None) -> Tensor | None:
        return None if size is None else self._rows.get(role, self._inner)

    def batches(self, role: str, size: int | None, count: int) -> list[Tensor | None]:
        return [self.rows(role, size) for _ in range(count)]

    def happens(self, probability: float) -> bool:
        return self._fresh

    def below(self, bound: int) -> int:
        return self._length


def sums() -> tuple[Quadratic, bilevel.Problem]:
    q = noisy_sum(rows=ROWS)
    return q, q.problem()


def somewhere(problem: bilevel.Problem, algorithm: Any, step: int = 1) -> State:
    """A state away from the start, with points and directions like any others."""
    state = algorithm.init(make(problem), problem.x0, problem.y0)
    generator = torch.Generator().manual_seed(1)
    points = {
        name: point + torch.randn(point.shape, generator=generator, dtype=point.dtype)
        for name, point in state.points.items()
    }
    return replace(state, points=points, step=step)


def expectation(algorithm: Any, state: State, problem: bilevel.Problem, **told: Any) -> Any:
    """The mean of the directions over every pair of rows."""
    oracle, pairs = make(problem), list(product(range(ROWS), repeat=2))
    found = [algorithm.directions(oracle, state, Drawn(i, j, **told)).by_point for i, j in pairs]
    return {name: torch.stack([d[name] for d in found]).mean(0) for name in found[0]}


def changed(state: State, problem: bilevel.Problem, keep: float) -> dict[str, Tensor]:
    """D(z) + keep · (d − D(z′)) on all rows, by SOBA's directions."""
    oracle, whole = make(problem), SOBA(batch=None)
    before = {name: state.points[f"{name} before"] for name in "xyv"}
    now = whole.directions(oracle, state, Drawn()).by_point
    then = whole.directions(oracle, replace(state, points=before), Drawn()).by_point
    kept = {name: state.points.get(f"d_{name}", then[name]) for name in "xyv"}
    return {name: now[name] + keep * (kept[name] - then[name]) for name in "xyv"}


@pytest.mark.parametrize("kind", [SRBA, SPABA])
def test_between_refreshes_the_mean_over_all_rows_is_the_change_on_all_rows(kind: Any) -> None:
    _, problem = sums()
    algorithm = kind(**COUPLED, batch=1)
    state = somewhere(problem, algorithm)
    mean, truth = expectation(algorithm, state, problem), changed(state, problem, keep=1.0)
    assert all(relative(mean[name], truth[name]) < 1e-12 for name in "xyv")


@pytest.mark.parametrize(
    ("algorithm", "step", "told"),
    [
        (SRBA(**COUPLED, batch=1, period=3), 6, {}),
        (SRBA(**COUPLED, batch=2), 4, {}),  # (8 + 8) / 2 / 2
        (SPABA(**COUPLED, batch=1), 5, {"fresh": True}),
        (SPABA(**COUPLED, batch=1), 0, {}),
    ],
    ids=["period", "period by rows", "coin", "first"],
)
def test_a_refresh_forgets_what_was_carried(algorithm: Any, step: int, told: Any) -> None:
    _, problem = sums()
    state = somewhere(problem, algorithm, step)
    oracle = make(problem)
    found = algorithm.directions(oracle, state, Drawn(**told)).by_point
    whole = SOBA(batch=None).directions(oracle, state, Drawn()).by_point
    assert all(relative(found[name], whole[name]) < 1e-14 for name in "xyv")


def test_fsla_is_soba_in_the_mean_but_for_the_momentum_of_x() -> None:
    _, problem = sums()
    algorithm = FSLA(**COUPLED, momentum=0.25, batch=1)
    state = somewhere(problem, algorithm)
    mean, truth = expectation(algorithm, state, problem), changed(state, problem, keep=0.75)
    plain = changed(state, problem, keep=0.0)
    assert relative(mean["x"], truth["x"]) < 1e-12
    assert all(relative(mean[name], plain[name]) < 1e-12 for name in "yv")


def test_sustain_in_the_mean_over_its_lengths_is_mrbo() -> None:
    """Q times the term of a random length: on all rows the mean is the series of Q terms."""
    _, problem = sums()
    Q, common = 5, {"inner_lr": 0.1, "outer_lr": 0.1, "neumann_lr": 0.2, "momentum": 0.25}
    sustain = SUSTAIN(**common, neumann_terms=Q, batch=None)
    mrbo = MRBO(**common, neumann_terms=Q - 1, batch=None)  # it counts products, not terms
    state, oracle = somewhere(problem, sustain), make(problem)
    found = [sustain.directions(oracle, state, Drawn(length=p)).by_point for p in range(Q)]
    truth = mrbo.directions(oracle, state, Drawn()).by_point
    for name in "xy":
        mean = torch.stack([directions[name] for directions in found]).mean(0)
        assert relative(mean, truth[name]) < 1e-12


def test_vrbo_on_all_rows_takes_the_inner_steps_and_the_series_of_stocbio() -> None:
    q, problem = sums()
    common = {"inner_steps": 3, "inner_lr": 0.2, "neumann_terms": 20, "neumann_lr": 0.5}
    vrbo = VRBO(**common, outer_lr=0.3, batch=None, period=4)
    stocbio = bilevel.algorithms.StocBiO(**common, outer_lr=0.3, batch=None)
    ours, theirs = (bilevel.minimize(problem, a, steps=1) for a in (vrbo, stocbio))
    assert relative(ours.y, theirs.y) < 1e-13  # x moves along h at the y before the last move
    ends = bilevel.minimize(problem, vrbo, steps=40, evaluate_every=40)
    assert relative(ends.x, q.solution()) < 1e-5  # but for the rest of the series


@pytest.mark.parametrize(
    "algorithm",
    [
        SRBA(inner_lr=0.15, outer_lr=0.05, batch=1, period=8),
        SPABA(inner_lr=0.15, outer_lr=0.05, batch=1, probability=0.15),
        VRBO(
            inner_steps=2, inner_lr=0.2, neumann_terms=25, neumann_lr=0.5,
            outer_lr=0.3, batch=2, period=4,
        ),
    ],
    ids=["srba", "spaba", "vrbo"],
)  # fmt: skip
def test_with_constant_steps_the_noise_of_a_finite_sum_vanishes(algorithm: Any) -> None:
    q, problem = sums()
    steps = 50 if isinstance(algorithm, VRBO) else 900
    result = bilevel.minimize(problem, algorithm, steps=steps, evaluate_every=steps)
    assert float(q.gradient(result.x).norm()) < 1e-7


@pytest.mark.parametrize("kind", [SRBA, SPABA, FSLA])
def test_the_solution_is_a_fixed_point_on_all_rows(kind: Any) -> None:
    q, problem = sums()
    algorithm, x = kind(**COUPLED, batch=None), q.solution()
    points = {"x": x, "y": q.inner_solution(x), "v": q.linear_solution(x)}
    state = algorithm.init(make(problem), points["x"], points["y"])
    state = replace(state, points={**state.points, **points})
    after, _ = algorithm.step(View.of(make(problem)), state)
    assert all(float((after.points[n] - p).norm()) < 1e-12 for n, p in points.items())


def test_v_is_kept_in_its_ball() -> None:
    _, problem = sums()
    result = bilevel.minimize(problem, SRBA(**COUPLED, batch=2, radius=0.01), steps=20)
    assert float(result.state.points["v"].norm()) == pytest.approx(0.01)
    with pytest.raises(ValueError, match=r"probability must be at most 1, got 1\.5"):
        SPABA(probability=1.5)


def test_nothing_is_asked_of_the_point_before_where_nothing_is_kept() -> None:
    asked: list[Any] = []
    carry({"x": torch.ones(1), "x before": torch.zeros(1)}, lambda p: asked.append(p) or {}, 0.0)
    assert len(asked) == 1


def test_the_coin_falls_as_often_as_it_should_and_the_same_way_again() -> None:
    oracle = make(sums()[1], seed=5)
    fell = [oracle.streams(k).happens(0.3) for k in range(2000)]
    assert sum(fell) / 2000 == pytest.approx(0.3, abs=0.04)
    assert fell == [oracle.streams(k).happens(0.3) for k in range(2000)]
    assert all(oracle.streams(k).happens(1.0) for k in range(50))
