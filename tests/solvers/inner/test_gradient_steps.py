"""Gradient descent and SGD against closed-form iterates and plain loops."""

import pytest
import torch
from bilevel.inner import SGD, GradientDescent, InnerStatus

import bilevel
from bilevel.oracles import make


@pytest.fixture
def quadratic(spd):
    """g = ½ y'Hy − y'(b + x), its H and b, with μ = 1 and L = 10."""
    H, b = spd(torch.logspace(0, 1, 6), seed=1)
    problem = bilevel.Problem(
        outer=lambda x, y: y.sum(),
        inner=lambda x, y: 0.5 * y @ H @ y - y @ (b + x),
        x0=torch.zeros(6).double(),
        y0=torch.linspace(-1, 1, 6).double(),
    )
    return problem, H, b


def averaging(rows=30, seen=None):
    """g = ½ mean ‖y − a_i‖², whose SGD iterates are weighted means of the batches' means."""
    data = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0)).double()

    def inner(x, y, batch):
        if seen is not None:
            seen.append(batch.index.tolist())
        return 0.5 * (y + 0 * x - batch.data).square().sum(1).mean()

    problem = bilevel.Problem(
        outer=lambda x, y: y.sum() + x.sum(),
        inner=inner,
        x0=torch.zeros(2).double(),
        y0=torch.ones(2).double(),
        inner_data=data,
    )
    return problem, data


def solve(solver, problem, x=None, seed=0, step=0):
    oracle = make(problem, seed)
    return solver.solve(oracle, problem.x0 if x is None else x, problem.y0, oracle.streams(step))


@pytest.mark.parametrize("steps", [1, 2, 5, 60])
@pytest.mark.parametrize("lr", [0.01, 0.1, 0.15])
def test_gradient_descent_gives_the_closed_form_iterate(quadratic, steps, lr):
    problem, H, b = quadratic
    x = torch.arange(6, dtype=torch.float64)
    y_star = torch.linalg.solve(H, b + x)
    power = torch.linalg.matrix_power(torch.eye(6).double() - lr * H, steps)
    found = solve(GradientDescent(steps, lr), problem, x)
    truth = y_star + power @ (problem.y0 - y_star)
    torch.testing.assert_close(found.y, truth, rtol=1e-12, atol=1e-13)
    assert (found.status, found.steps) == (InnerStatus.STEP_LIMIT, steps)


@pytest.mark.parametrize("steps", [1, 10, 100])
def test_gradient_descent_contracts_by_1_minus_lr_mu_a_step(quadratic, steps):
    problem, H, b = quadratic
    y_star = torch.linalg.solve(H, b)
    start = (problem.y0 - y_star).norm()
    left = (solve(GradientDescent(steps, 0.1), problem).y - y_star).norm()
    assert left <= 0.9**steps * start * (1 + 1e-12)


def test_gradient_descent_is_a_plain_loop_on_a_loss_that_is_not_quadratic():
    problem = bilevel.Problem(
        outer=lambda x, y: y.sum(),
        inner=lambda x, y: (y.exp() - x * y).sum() + (y**4).sum(),
        x0=torch.tensor([1.0, 2.0]).double(),
        y0=torch.tensor([0.3, -0.2]).double(),
    )
    y = problem.y0.clone()
    for _ in range(7):
        y = y - 0.05 * (y.exp() - problem.x0 + 4 * y**3)
    torch.testing.assert_close(
        solve(GradientDescent(7, 0.05), problem).y, y, rtol=1e-14, atol=1e-15
    )


@pytest.mark.parametrize("batch", [1, 3, 30])
def test_sgd_is_the_plain_loop_over_the_batches_that_the_loss_saw(batch):
    seen = []
    problem, data = averaging(seen=seen)
    seen.clear()
    found = solve(SGD(steps=8, lr=0.3, batch=batch), problem)
    assert [len(rows) for rows in seen] == [batch] * 8
    y = problem.y0.clone()
    for rows in seen:
        y = 0.7 * y + 0.3 * data[rows].mean(0)
    torch.testing.assert_close(found.y, y, rtol=1e-13, atol=1e-14)
    assert (found.status, found.steps) == (InnerStatus.STEP_LIMIT, 8)


def test_sgd_takes_its_step_sizes_from_a_schedule():
    seen = []
    problem, data = averaging(seen=seen)
    seen.clear()
    lr = bilevel.schedules.decaying(0.5, 0.5)
    found = solve(SGD(steps=6, lr=lr, batch=2), problem)
    y = problem.y0.clone()
    for t, rows in enumerate(seen):
        y = y - 0.5 / (t + 1) ** 0.5 * (y - data[rows].mean(0))
    torch.testing.assert_close(found.y, y, rtol=1e-13, atol=1e-14)


def test_sgd_on_all_rows_is_gradient_descent_to_the_bit():
    problem, _ = averaging()
    sgd = solve(SGD(steps=9, lr=0.2, batch=None), problem).y
    assert torch.equal(sgd, solve(GradientDescent(9, 0.2), problem).y)


def test_sgd_draws_a_fresh_batch_of_different_rows_at_each_step():
    oracle, y = make(averaging()[0]), averaging()[0].y0
    plan = SGD(steps=20, lr=0.1, batch=6).plan(oracle, y, y, oracle.streams(0))
    batches = [tuple(step.rows.tolist()) for step in plan]
    assert all(len(set(rows)) == 6 for rows in batches)
    # Two of 593,775 possible batches coincide by chance once in some thousand seeds.
    assert len({frozenset(rows) for rows in batches}) == 20


def test_sgd_repeats_its_batches_with_seed_and_step_and_changes_them_with_either():
    problem, _ = averaging()
    solver = SGD(steps=4, lr=0.3, batch=2)
    ys = {
        (seed, step): solve(solver, problem, None, seed, step).y
        for seed in (0, 1)
        for step in (0, 1)
    }
    assert torch.equal(ys[0, 0], solve(solver, problem, None, 0, 0).y)
    distinct = {tuple(y.tolist()) for y in ys.values()}
    assert len(distinct) == 4


@pytest.mark.parametrize(
    "solver", [GradientDescent(5, 0.1), SGD(5, 0.1, 3)], ids=["gradient descent", "sgd"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_keep_the_dtype_and_write_into_neither_x_nor_y(solver, dtype):
    data = torch.ones(10, 2, dtype=dtype)
    problem = bilevel.Problem(
        outer=lambda x, y: y.sum(),
        inner=lambda x, y, batch: (y - x * batch.data).square().mean(),
        x0=torch.full((2,), 3.0, dtype=dtype),
        y0=torch.zeros(2, dtype=dtype),
        inner_data=data,
    )
    oracle = make(problem)
    x, y = torch.full((2,), 3.0, dtype=dtype), torch.zeros(2, dtype=dtype)
    found = solver.solve(oracle, x, y, oracle.streams(0))
    assert found.y.dtype == dtype
    # ∇y g = y − 3, so that five steps of 0.1 leave 0.9⁵ of the way.
    truth = torch.full((2,), 3 * (1 - 0.9**5), dtype=dtype)
    torch.testing.assert_close(found.y, truth, rtol=10 * torch.finfo(dtype).eps, atol=0)
    found.y.zero_()
    assert torch.equal(y, torch.zeros(2, dtype=dtype))
    assert torch.equal(x, torch.full((2,), 3.0, dtype=dtype))


def test_batch_larger_than_the_data_raises_with_both_numbers():
    problem, _ = averaging(rows=5)
    with pytest.raises(ValueError, match=r"batch of 6 rows.*'inner'.*only 5"):
        solve(SGD(steps=2, lr=0.1, batch=6), problem)
