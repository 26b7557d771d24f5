"""A shared batch: at each outer step both losses see the same rows, the next ones in a circle."""

from __future__ import annotations

import pytest
import torch

import bilevel
from bilevel.algorithms import MAML, AIDBiO, ITDBiO, StocBiO
from bilevel.oracles import CountingOracle, SharedBatch, View, Views, make

from ..truth.dense_truth import relative
from ..truth.raised_errors import assert_raises, claims
from ..truth.watched import Watched

ROWS, BATCH, D, LR, OUTER_LR = 7, 3, 4, 0.3, 0.5
_GENERATOR = torch.Generator().manual_seed(0)
A = torch.rand(ROWS, 2, generator=_GENERATOR).double() + 0.5
T = torch.randn(ROWS, 2, generator=_GENERATOR).double()


def inner(x, y, batch):
    curvature, target = batch.data
    return (0.5 * curvature * (y - x.tanh() * target) ** 2).sum(1).mean() + 0.1 * (y**4).sum()


def outer(x, y, batch):
    _, target = batch.data
    return ((y - target.cos()) ** 2).sum(1).mean() + 0.1 * x.square().sum()


def stated(batch=BATCH, **changes):
    arguments = {
        "outer": outer,
        "inner": inner,
        "x0": torch.tensor([0.4, -0.2]).double(),
        "y0": torch.zeros(2).double(),
        "outer_data": (A, T),
        "inner_data": (A, T),
        "tasks": None if batch is None else bilevel.Tasks(batch),
        **changes,
    }
    return bilevel.Problem(**arguments)


def rows_of_step(k):
    return [(k * BATCH + i) % ROWS for i in range(BATCH)]


@pytest.mark.parametrize("name", ["itd-bio", "aid-bio", "maml", "hoag", "reverse"])
def test_both_losses_see_the_next_rows_in_a_circle_and_no_others(name):
    seen = {"inner": [], "outer": []}

    def spy(role, loss):
        def spied(x, y, batch):
            seen[role].append(batch.index.tolist())
            return loss(x, y, batch)

        return spied

    problem = stated(outer=spy("outer", outer), inner=spy("inner", inner))
    views = Views(problem)
    algorithm = bilevel.algorithms.registry()[name].make()
    state = algorithm.init(views.at(0).whole, problem.x0, problem.y0)
    for k in range(8):
        for calls in seen.values():
            calls.clear()
        state, _ = algorithm.step(views.at(k), state)
        for calls in seen.values():
            assert calls
            assert all(rows == rows_of_step(k) for rows in calls)


def by_hand(x, y, rows):
    """One outer step of ITD-BiO: (x, y, hypergradient)."""
    batch = bilevel.Batch((A[rows], T[rows]), torch.tensor(rows))
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    path = y
    for _ in range(D):
        (gradient,) = torch.autograd.grad(inner(x, path, batch), path, create_graph=True)
        path = path - LR * gradient
    (h,) = torch.autograd.grad(outer(x, path, batch), x)
    return x.detach() - OUTER_LR * h, path.detach(), h


@pytest.mark.parametrize("warm", [True, False])
def test_a_run_equals_a_loop_written_by_hand(warm):
    problem = stated()
    algorithm = ITDBiO(inner_steps=D, inner_lr=LR, outer_lr=OUTER_LR, warm_start=warm)
    algorithm, seen = Watched(algorithm), []
    bilevel.minimize(problem, algorithm, steps=9, callbacks=[lambda p: seen.append(p.state)])
    x, y = problem.x0, problem.y0
    for k, (state, direction) in enumerate(zip(seen, algorithm.directions, strict=True)):
        x, y, h = by_hand(x, y if warm else problem.y0, rows_of_step(k))
        assert relative(direction, h) < 1e-12
        assert relative(state.x, x) < 1e-12
        assert relative(state.y, y) < 1e-12


def test_counts_count_the_rows_of_the_batch():
    counts = bilevel.minimize(stated(), ITDBiO(inner_steps=D, inner_lr=0.1), steps=2).counts
    assert (counts.gc_g, counts.gc_g_samples) == (2 * D, 2 * D * BATCH)
    assert (counts.gc_f, counts.gc_f_samples) == (4, 4 * BATCH)
    assert (counts.jv_samples, counts.hv_samples) == (2 * D * BATCH, 2 * (D - 1) * BATCH)


@pytest.mark.parametrize("algorithm", [ITDBiO(), AIDBiO(), MAML(), StocBiO(batch=2)], ids=str)
def test_a_run_cut_at_any_step_and_resumed_equals_the_unbroken_run_to_the_bit(algorithm):
    unbroken = bilevel.minimize(stated(), algorithm, steps=5, seed=2)
    for cut in range(1, 5):
        state = bilevel.minimize(stated(), algorithm, steps=cut, seed=2).state
        resumed = bilevel.minimize(stated(), algorithm, steps=5, seed=2, state=state)
        assert torch.equal(resumed.state.x, unbroken.state.x)
        assert torch.equal(resumed.state.y, unbroken.state.y)
        last = resumed.history[-1].outer_value, unbroken.history[-1].outer_value
        assert last[0] == last[1]


def test_the_recorded_outer_value_is_that_of_the_rows_of_the_step():
    result = bilevel.minimize(stated(), ITDBiO(inner_steps=D), steps=3)
    value = stated().outer_loss(result.state.x, result.state.y, torch.tensor(rows_of_step(2)))
    assert result.history[-1].outer_value == float(value)


def test_batches_of_an_algorithm_are_drawn_from_the_shared_one():
    oracle = Views(stated()).at(2).whole  # rows 6, 0, 1
    assert oracle.inner_rows == oracle.outer_rows == BATCH
    x, y = stated().x0, stated().y0
    drawn = torch.tensor([2, 0])
    expected = make(stated()).inner(x, y, torch.tensor([1, 6])).gradient()
    assert torch.equal(oracle.inner(x, y, drawn).gradient(), expected)
    assert oracle.streams(0).available("inner") == BATCH


def test_a_problem_without_a_shared_batch_is_the_same_at_each_step():
    views = Views(stated(None))
    assert views.at(3) == View(3, views.at(0).whole, (views.at(0).whole,))
    assert views.bare(3) is views.oracle
    shown = Views(stated()).at(3).whole
    assert isinstance(shown, CountingOracle)
    assert isinstance(shown.oracle, SharedBatch)


def test_a_shared_batch_of_all_rows_is_the_plain_problem():
    whole, plain = (
        bilevel.minimize(stated(size), AIDBiO(inner_steps=D), steps=4) for size in (ROWS, None)
    )
    assert relative(whole.x, plain.x) < 1e-13


def test_one_hypergradient_and_its_check_are_of_the_first_batch():
    problem, whole = stated(), stated(None)
    inner_solver = bilevel.inner.GradientDescent(D, LR)
    h = bilevel.hypergradient(problem, problem.x0, problem.y0, bilevel.ITD(), inner_solver)
    assert relative(h.value, by_hand(problem.x0, problem.y0, [0, 1, 2])[2]) < 1e-12
    y = bilevel.solve_inner(problem, problem.x0, bilevel.inner.NewtonCG(1e-12)).y
    first = torch.arange(BATCH)
    assert make(whole).inner(problem.x0, y, first).gradient().norm() < 1e-11
    assert bilevel.check_hypergradient(problem, problem.x0).relative_error < 1e-9


@claims(
    ("none", lambda: stated(0), ValueError, "batch must be … at least 1, got 0"),
    ("half", lambda: stated(2.5), ValueError, "batch must be an integer … got 2.5"),
    (
        "more than the rows",
        lambda: stated(8),
        ValueError,
        "tasks.batch = 8 rows … inner_data have 7 rows and outer_data 7 … at least that many",
    ),
    (
        "other numbers of rows",
        lambda: stated(outer_data=(A[:5], T[:5])),
        ValueError,
        "inner_data have 7 rows and outer_data 5, but they must have the same number",
    ),
    (
        "one loss without data",
        lambda: stated(outer_data=None, outer=lambda x, y: (y**2).sum()),
        ValueError,
        "inner_data have 7 rows and outer_data None",
    ),
    (
        "no data",
        lambda: bilevel.Problem(
            lambda x, y: (y**2).sum(),
            lambda x, y: ((y - x) ** 2).sum(),
            torch.ones(1),
            torch.ones(1),
            tasks=bilevel.Tasks(2),
        ),
        ValueError,
        "inner_data have None rows",
    ),
)
def test_a_wrong_shared_batch_raises(provoke, error, text):
    assert_raises(provoke, error, text)
