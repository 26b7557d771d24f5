"""SOBA, SABA, MA-SOBA and MRBO: fixed points, exact expectations, tables, and where they get to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import MASOBA, MRBO, SABA, SOBA
from bilevel.algorithms.contract import State
from bilevel.kernels.array_code import Block
from bilevel.oracles import View, make
from bilevel.oracles.points import Oracle

from ..truth.dense_truth import relative
from ..truth.quadratics import Quadratic, noisy_sum

ROWS = 12


class Drawn:
    """Streams that give the rows that they are told."""

    def __init__(self, inner: int, outer: int) -> None:
        self._rows = {"inner": torch.tensor([inner]), "outer": torch.tensor([outer])}

    def rows(self, role: str, size: int | None) -> Tensor | None:
        return None if size is None else self._rows[role]

    def block(self, role: str, size: int | None) -> Block:
        if size is None:
            return Block(None, 0, 1.0)
        i = int(self._rows[role][0]) // size
        rows = torch.arange(i * size, min((i + 1) * size, ROWS))
        return Block(rows, i, len(rows) / ROWS)


def sums() -> tuple[Quadratic, bilevel.Problem]:
    q = noisy_sum(rows=ROWS)
    return q, q.problem()


def somewhere(problem: bilevel.Problem, algorithm: Any) -> State:
    """A state away from the start, with tables of the start."""
    oracle = make(problem)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    generator = torch.Generator().manual_seed(1)
    points = {
        name: point + torch.randn(point.shape, generator=generator, dtype=point.dtype)
        for name, point in state.points.items()
    }
    return replace(state, points=points)


@pytest.mark.parametrize("kind", [SOBA, SABA, MASOBA])
def test_the_solution_is_a_fixed_point_on_all_rows(kind: Any) -> None:
    q, problem = sums()
    algorithm, x = kind(inner_lr=0.1, outer_lr=0.1, batch=None), q.solution()
    points = {"x": x, "y": q.inner_solution(x), "v": q.linear_solution(x)}
    state = algorithm.init(make(problem), points["x"], points["y"])
    state = replace(state, points={**state.points, **points})
    tables = algorithm.tables(make(problem), state.points)
    after, _ = algorithm.step(View.of(make(problem)), replace(state, tables=tables))
    for name, point in points.items():
        assert float((after.points[name] - point).norm()) < 1e-12


@pytest.mark.parametrize("kind", [SOBA, SABA])
def test_directions_on_single_rows_are_unbiased(kind: Any) -> None:
    """The mean over every pair of rows is the direction on all rows, whatever the tables hold."""
    _, problem = sums()
    algorithm, oracle = kind(inner_lr=0.1, outer_lr=0.1, batch=1), make(problem)
    state = somewhere(problem, algorithm)
    pairs = list(product(range(ROWS), repeat=2))
    found = [algorithm.directions(oracle, state, Drawn(i, j)).by_point for i, j in pairs]
    whole = SOBA(batch=None).directions(oracle, state, Drawn(0, 0)).by_point
    for name in "xyv":
        mean = torch.stack([directions[name] for directions in found]).mean(0)
        assert relative(mean, whole[name]) < 1e-12


def test_saba_directions_on_blocks_of_unequal_size_are_unbiased() -> None:
    _, problem = sums()
    algorithm, oracle = SABA(inner_lr=0.1, outer_lr=0.1, batch=5), make(problem)  # 5, 5 and 2 rows
    state = somewhere(problem, algorithm)
    pairs = list(product(range(ROWS), repeat=2))
    found = [algorithm.directions(oracle, state, Drawn(i, j)).by_point for i, j in pairs]
    whole = SOBA(batch=None).directions(oracle, state, Drawn(0, 0)).by_point
    for name in "xyv":
        mean = torch.stack([directions[name] for directions in found]).mean(0)
        assert relative(mean, whole[name]) < 1e-12


def test_saba_tables_hold_what_the_run_has_accepted_and_their_means() -> None:
    _, problem = sums()
    algorithm = SABA(inner_lr=0.05, outer_lr=0.02, batch=5)
    result = bilevel.minimize(problem, algorithm, steps=30, evaluate_every=30)
    shares = torch.tensor([5.0, 5.0, 2.0]).double() / ROWS
    for name in ("g", "Hv", "Jv", "f_x", "f_y"):
        table, mean = result.state.tables[name], result.state.tables[f"mean {name}"][0]
        assert relative(mean, shares @ table) < 1e-12
    fresh = algorithm.init(make(problem), problem.x0, problem.y0)
    assert not torch.equal(fresh.tables["g"], result.state.tables["g"])


def test_a_step_leaves_the_tables_to_the_run() -> None:
    _, problem = sums()
    algorithm, oracle = SABA(inner_lr=0.1, outer_lr=0.1, batch=1), make(problem)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    before = {name: table.clone() for name, table in state.tables.items()}
    after, report = algorithm.step(View.of(oracle), state)
    assert {write.table for write in report.writes} == set(before)
    assert all(torch.equal(after.tables[name], table) for name, table in before.items())


def test_a_step_that_diverges_writes_no_table() -> None:
    _, problem = sums()
    algorithm = SABA(inner_lr=1e200, outer_lr=1e200, batch=1)
    result = bilevel.minimize(problem, algorithm, steps=10)
    kept = bilevel.minimize(problem, algorithm, steps=max(1, result.state.step), evaluate_every=99)
    assert result.status == "diverged"
    assert all(bool(table.isfinite().all()) for table in result.state.tables.values())
    assert kept.state.step == max(1, result.state.step) or kept.status == "diverged"


def test_saba_on_single_rows_goes_to_rounding_where_soba_stays_at_its_noise() -> None:
    q = noisy_sum(rows=4, kappa=1.5, sizes=(2, 3))
    settings = {"inner_lr": 0.25, "outer_lr": 0.1, "batch": 1}
    steps = {"steps": 600, "evaluate_every": 600, "seed": 0}
    saba, soba = (bilevel.minimize(q.problem(), k(**settings), **steps) for k in (SABA, SOBA))
    assert float(q.gradient(saba.x).norm()) < 1e-10
    assert float(q.gradient(soba.x).norm()) > 1e-2


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [
        (SOBA(inner_lr=0.5, outer_lr=0.2, batch=None), 200),
        (SABA(inner_lr=0.5, outer_lr=0.2, batch=None), 200),
        (MASOBA(inner_lr=0.5, outer_lr=0.2, average=0.5, batch=None), 200),
        # Without v to learn it needs fewer steps.
        (MRBO(inner_lr=0.5, outer_lr=0.2, neumann_lr=0.5, neumann_terms=20, batch=None), 60),
    ],
    ids=("SOBA", "SABA", "MASOBA", "MRBO"),
)
def test_on_all_rows_they_reach_the_solution(algorithm: Any, steps: int) -> None:
    q = noisy_sum(rows=ROWS, kappa=1.5)
    result = bilevel.minimize(q.problem(), algorithm, steps=steps, evaluate_every=steps)
    assert float((result.x - q.solution()).norm()) < 1e-6


def test_ma_soba_moves_along_the_average_of_soba_s_directions() -> None:
    _, problem = sums()
    oracle = make(problem)
    algorithm = MASOBA(inner_lr=0.1, outer_lr=0.1, average=0.25, batch=None)
    state = somewhere(problem, algorithm)
    newest = SOBA(batch=None).directions(oracle, state, Drawn(0, 0)).by_point["x"]
    after, report = algorithm.step(View.of(oracle), state)
    expected = 0.75 * state.points["h"] + 0.25 * newest
    assert relative(report.direction, expected) < 1e-14
    assert relative(after.x, state.x - 0.1 * expected) < 1e-14
    assert torch.equal(after.points["h"], report.direction)


def test_mrbo_corrects_its_momentum_by_the_change_on_the_same_batches() -> None:
    """With η = 0 it adds up changes: on all rows that is the direction itself, at every step."""
    _, problem = sums()
    settings = {"inner_lr": 0.1, "outer_lr": 0.05, "neumann_lr": 0.2, "batch": None}
    plain, summed = (
        bilevel.minimize(problem, MRBO(momentum=m, **settings), steps=20) for m in (0.999999, 0.0)
    )
    assert relative(summed.x, plain.x) < 1e-12


def test_mrbo_draws_one_set_of_batches_for_both_points() -> None:
    _, problem = sums()
    asked: list[Any] = []
    oracle = make(problem)
    original = oracle.inner
    oracle.inner = lambda x, y, rows=None: asked.append(rows) or original(x, y, rows)  # type: ignore[method-assign]
    algorithm = MRBO(inner_lr=0.1, outer_lr=0.1, batch=3)
    state, _ = algorithm.step(View.of(oracle), algorithm.init(oracle, problem.x0, problem.y0))
    asked.clear()
    algorithm.step(View.of(oracle, 1), state)
    assert len(asked) == 2
    assert torch.equal(asked[0], asked[1])


@dataclass(frozen=True, kw_only=True)
class Anchored(SOBA):
    """SOBA with a point that its steps never mention."""

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return {**super().start(oracle, x0, y0), "anchor": y0 + 1}


def test_points_that_a_step_does_not_mention_stay() -> None:
    problem = sums()[1]
    state = bilevel.minimize(problem, Anchored(inner_lr=0.1, batch=4), steps=3).state
    assert torch.equal(state.points["anchor"], problem.y0 + 1)
