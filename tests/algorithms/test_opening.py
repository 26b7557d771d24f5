"""How a run on many rows begins: by cheap steps on batches, and at once on all rows if need be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import AnchoredAID
from bilevel.algorithms.opening import belongs_to_rows, opened
from bilevel.oracles import CountingOracle, make

from ..bank.rows import clean_autograd
from ..truth.dense_truth import hypergradient, relative


def regression(rows: int = 640, scale: float = 1.0, far: float = 0.0) -> bilevel.Problem:
    """Least squares with one penalty a feature; one row may be this far away."""
    draw = torch.Generator().manual_seed(1)
    X = torch.randn(rows, 4, generator=draw, dtype=torch.float64)
    b = X @ torch.ones(4).double()
    X[-1] += far

    def inner(x: Tensor, y: Tensor, batch: Any) -> Tensor:
        rows, targets = batch.data
        return scale * (((rows @ y - targets) ** 2).mean() + 0.01 * (x.exp() * y**2).sum())

    def outer(x: Tensor, y: Tensor, batch: Any) -> Tensor:
        return ((batch.data[0] @ y - batch.data[1]) ** 2).mean()

    zeros = torch.zeros(4).double()
    return bilevel.Problem(outer, inner, zeros, zeros, outer_data=(X, b), inner_data=(X, b))


def test_one_pass_in_batches_goes_most_of_the_way_and_costs_one_pass() -> None:
    problem = regression()
    oracle = CountingOracle(make(problem))
    y = opened(oracle, problem.x0, problem.y0, 1.0)
    solution = bilevel.solve_inner(problem, problem.x0).y
    assert relative(y, solution) < 0.1
    assert oracle.counts.gc_g_samples == 640
    assert oracle.counts.hv_samples == 2 * 4 * 64  # two rates


def test_its_steps_do_not_depend_on_the_units_of_the_loss() -> None:
    found = [
        opened(make(problem), problem.x0, problem.y0, 0.5)
        for problem in (regression(), regression(scale=2.0**40))
    ]
    assert relative(found[1], found[0]) < 1e-9


def test_steps_that_a_far_row_throws_away_are_not_taken() -> None:
    problem = regression(far=1e6)
    oracle = make(problem)
    y = opened(oracle, problem.x0, problem.y0, 1.0)
    values = [float(oracle.inner(problem.x0, at).value()) for at in (problem.y0, y)]
    assert torch.equal(y, problem.y0) or values[1] < values[0]


def weighted() -> bilevel.Problem:
    draw = torch.Generator().manual_seed(2)
    X, b = torch.randn(300, 3, generator=draw).double(), torch.arange(300) % 2
    return bilevel.softmax_problem(
        (X, b), (X[:50], b[:50]), weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1)
    )


def shared() -> bilevel.Problem:
    """As many entries of x as there are rows, but all of them in each row."""
    data = torch.ones(200, 1).double()
    return bilevel.Problem(
        outer=lambda x, y, batch: ((y - batch.data) ** 2).mean() + (x**2).mean(),
        inner=lambda x, y, batch: ((y - x.mean() - batch.data) ** 2).mean(),
        x0=torch.zeros(200).double(),
        y0=torch.zeros(1).double(),
        outer_data=data,
        inner_data=data,
    )


@pytest.mark.parametrize(
    ("make_problem", "truth"),
    [(weighted, True), (lambda: clean_autograd(n=300, seed=3), True), (shared, False)],
)
def test_it_sees_whether_rows_have_entries_of_x_for_themselves(
    make_problem: Any, truth: bool
) -> None:
    problem = make_problem()
    y = torch.linspace(-1, 1, len(problem.y0)).double()
    assert belongs_to_rows(make(problem), problem.x0, y) is truth


def test_where_x_belongs_to_rows_the_first_step_knows_its_hypergradient_on_all_of_them() -> None:
    problem = clean_autograd(n=2000, seed=3)
    begun = bilevel.minimize(problem, AnchoredAID(), steps=1)
    assert relative(begun.state.points["h"], hypergradient(problem, problem.x0)) < 0.01
    # No solve on a sample that says nothing of x, and one round on all rows.
    assert begun.counts.gc_g_samples + begun.counts.hv_samples < 30 * 2000
