"""The inner solvers that stop at a tolerance: L-BFGS, Newton-CG, and whoever joins them."""

import dataclasses
import itertools
import math

import pytest
import torch
from bilevel.inner import InnerSolver
from bilevel.linear import jacobi

import bilevel
from bilevel import inner
from bilevel.oracles import make
from bilevel.solvers.linear.curvature import Curvature

SOLVERS = {
    name: getattr(inner, name)
    for name in inner.__all__
    if dataclasses.is_dataclass(getattr(inner, name))
    and issubclass(getattr(inner, name), InnerSolver)
    and any(field.name == "tol" for field in dataclasses.fields(getattr(inner, name)))
}


@pytest.fixture(params=SOLVERS.values(), ids=SOLVERS)
def solver(request):
    return request.param


def unconstrained(g, y0):
    """A problem whose inner loss is g(y); x only shifts it."""
    return bilevel.Problem(
        outer=lambda x, y: y.sum(),
        inner=lambda x, y: g(y) + 0 * x.sum(),
        x0=torch.zeros(1, dtype=y0.dtype),
        y0=y0,
    )


def solve(solver, problem, x=None, y=None):
    oracle = make(problem)
    x = problem.x0 if x is None else x
    return solver.solve(oracle, x, problem.y0 if y is None else y, oracle.streams(0))


def gradient_norm(problem, y):
    return float(make(problem).inner(problem.x0, y).gradient().norm())


def softmax(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 5, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(3, (40,), generator=generator)
    return bilevel.softmax_problem(
        (X, labels),
        (X[:10], labels[:10]),
        weights=bilevel.SigmoidWeights(),
        penalty=bilevel.Ridge(0.01),
        classes=3,
    )


def test_both_solvers_of_the_contract_are_found():
    assert {"LBFGS", "NewtonCG"} <= SOLVERS.keys()


@pytest.mark.parametrize("n", [1, 3, 20])
@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
def test_solver_reaches_its_tolerance_on_a_quadratic(solver, spd, n, condition):
    H, b = spd(torch.linspace(1, condition, n), seed=n)
    problem = unconstrained(lambda y: 0.5 * y @ H @ y - y @ b, torch.ones(n).double())
    # A line search that compares values sees gradients down to √(ε L |g|), and not below.
    tol = 1e-7 * math.sqrt(condition)
    found = solve(solver(tol=tol), problem)
    assert found.status == "converged"
    assert found.gradient_norm <= tol
    # With μ = 1 the error is at most the gradient's norm, up to rounding.
    assert (found.y - torch.linalg.solve(H, b)).norm() <= tol + 1e-12


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
def test_newton_goes_on_below_what_values_can_show(spd, condition):
    H, b = spd(torch.linspace(1, condition, 20), seed=20)
    problem = unconstrained(lambda y: 0.5 * y @ H @ y - y @ b, torch.ones(20).double())
    found = solve(inner.NewtonCG(tol=1e-9), problem)
    assert found.status == "converged"
    assert (found.y - torch.linalg.solve(H, b)).norm() <= 1e-9 + 1e-12


@pytest.mark.parametrize(
    ("dtype", "tol"), [(torch.float64, 1e-8), (torch.float32, 1e-4)], ids=["64", "32"]
)
def test_solver_reaches_its_tolerance_on_softmax_regression(solver, dtype, tol):
    problem = softmax(dtype)
    found = solve(solver(tol=tol), problem)
    assert found.status == "converged"
    assert found.y.dtype == dtype
    assert gradient_norm(problem, found.y) <= tol * (1 + 1e-6)


def test_solvers_agree_on_the_softmax_minimiser():
    problem = softmax()
    exact = solve(inner.NewtonCG(tol=1e-14), problem).y
    for solver in SOLVERS.values():
        found = solve(solver(tol=1e-8), problem)
        # The ridge makes g 0.02-strongly convex: the error is at most the gradient over that.
        assert (found.y - exact).norm() <= found.gradient_norm / 0.02 + 1e-12


def test_solver_converges_where_undamped_newton_diverges(solver):
    def slope(y):
        return math.tanh(y) + 1e-3 * y

    def curvature(y):
        return 1 - math.tanh(y) ** 2 + 1e-3

    y = 3.0
    path = [abs(y := y - slope(y) / curvature(y)) for _ in range(50)]
    assert min(path) > 60, "the start must be one from where the plain method never comes back"

    def log_cosh(y):
        # log(cosh y) without overflow
        return (y.abs() + torch.nn.functional.softplus(-2 * y.abs()) - math.log(2)).sum()

    problem = unconstrained(
        lambda y: log_cosh(y) + 5e-4 * y.square().sum(), torch.tensor([3.0]).double()
    )
    found = solve(solver(tol=1e-10), problem)
    assert found.status == "converged"
    assert abs(found.y.item()) <= 1e-9


def test_reported_gradient_norm_is_that_of_the_returned_y(solver):
    problem = softmax()
    for steps in (1, 2, 4):
        found = solve(solver(tol=1e-12, steps=steps), problem)
        assert found.gradient_norm == pytest.approx(gradient_norm(problem, found.y), rel=1e-12)


def test_too_few_steps_are_reported_as_not_converged(solver):
    problem = softmax()
    found = solve(solver(tol=1e-10, steps=2), problem)
    assert (found.status, found.steps) == ("not_converged", 2)
    assert found.gradient_norm > 1e-10
    oracle = make(problem)
    value = oracle.inner(problem.x0, found.y).value()
    assert value < oracle.inner(problem.x0, problem.y0).value(), "the steps must still be kept"


def test_gradient_that_lies_is_reported_as_stalled_and_y_is_kept(solver):
    # Its value is ½‖y‖² but autograd sees the gradient −y: no step downhill goes down.
    problem = unconstrained(
        lambda y: 0.5 * (2 * y.detach() - y).square().sum(), torch.tensor([1.0, 2.0]).double()
    )
    found = solve(solver(tol=1e-8), problem)
    assert found.status == "stalled"
    torch.testing.assert_close(found.y, problem.y0, rtol=1e-10, atol=0)


def test_tolerance_below_rounding_is_never_called_converged(solver):
    problem = softmax()
    found = solve(solver(tol=1e-30, steps=50), problem)
    assert found.status in ("stalled", "not_converged")
    assert found.gradient_norm <= 1e-8, "but it went as far as it could"


@pytest.mark.parametrize("seed", range(4))
def test_points_that_the_line_search_gave_up_leave_no_gradient_behind(solver, spd, seed):
    H, b = spd(torch.linspace(1, 1e4, 20), seed=seed)
    problem = unconstrained(lambda y: 0.5 * y @ H @ y - y @ b, torch.ones(20).double())
    found = solve(solver(tol=1e-30, steps=100), problem)
    assert found.status in ("stalled", "not_converged")
    assert found.gradient_norm == pytest.approx(gradient_norm(problem, found.y), rel=1e-12)


def test_start_at_the_solution_is_returned_at_once(solver):
    problem = softmax()
    exact = solve(solver(tol=1e-9), problem).y
    found = solve(solver(tol=1e-8), problem, y=exact)
    assert (found.status, found.steps) == ("converged", 0)
    assert torch.equal(found.y, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_solver_writes_into_neither_x_nor_y(solver, dtype):
    problem = softmax(dtype)
    x, y = problem.x0 + 0.5, problem.y0 + 0.1
    given_x, given_y = x.clone(), y.clone()
    solve(solver(tol=1e-3), problem, x, y)
    assert torch.equal(x, given_x)
    assert torch.equal(y, given_y)


def test_user_may_write_into_a_solution_without_changing_the_problem(solver):
    y0 = torch.zeros(2).double()
    problem = unconstrained(lambda y: y.square().sum(), y0)
    found = bilevel.solve_inner(problem, problem.x0, solver())
    assert found.steps == 0
    found.y.fill_(7.0)
    assert torch.equal(problem.y0, torch.zeros(2).double())
    assert torch.equal(y0, torch.zeros(2).double())


def test_value_never_rises_over_newton_steps():
    problem = softmax()
    oracle = make(problem)
    values = [float(oracle.inner(problem.x0, problem.y0).value())]
    for steps in range(1, 8):
        y = solve(inner.NewtonCG(tol=1e-14, steps=steps), problem).y
        values.append(float(oracle.inner(problem.x0, y).value()))
    assert all(b <= a + 1e-15 for a, b in itertools.pairwise(values))


def test_newton_solves_a_quadratic_of_one_number_in_one_step():
    problem = unconstrained(lambda y: 2 * y.square().sum() - y.sum(), torch.tensor([5.0]).double())
    found = solve(inner.NewtonCG(tol=1e-12), problem)
    assert (found.status, found.steps, found.y.item()) == ("converged", 1, 0.25)


def test_newton_leaves_a_point_of_negative_curvature_downhill():
    problem = unconstrained(lambda y: (y**4 / 4 - y**2 / 2).sum(), torch.tensor([0.1]).double())
    found = solve(inner.NewtonCG(tol=1e-10), problem)
    assert found.status == "converged"
    assert found.y.item() == pytest.approx(1.0, abs=1e-9)


def test_newton_uses_the_preconditioner_that_it_is_given(spd):
    scales = torch.logspace(0, 6, 30, dtype=torch.float64)
    problem = unconstrained(lambda y: 0.5 * (scales * y) @ y - y.sum(), torch.zeros(30).double())
    few = {"tol": 1e-9, "steps": 1, "cg_steps": 1}
    assert solve(inner.NewtonCG(**few, preconditioner=scales), problem).status == "converged"
    assert solve(inner.NewtonCG(**few), problem).status == "not_converged"
    # The closed-form oracle knows its diagonal, so that jacobi works there.
    assert solve(inner.NewtonCG(1e-9, preconditioner=jacobi), softmax()).status == "converged"


def test_newton_ends_where_g_is_zero_at_its_minimum():
    """Its value shows no rounding there, and no step lowers it further."""
    generator = torch.Generator().manual_seed(195)
    A = torch.randn(6, 12, generator=generator, dtype=torch.float64)
    t = A @ torch.ones(12, dtype=torch.float64)
    problem = unconstrained(lambda y: ((A @ y - t) ** 2).sum(), torch.zeros(12).double())
    solved = solve(inner.NewtonCG(tol=1e-300, steps=60, preconditioner=Curvature()), problem)
    assert solved.status == "stalled"
    assert solved.steps <= 20


def test_an_overflowing_gradient_is_not_called_converged(solver):
    problem = unconstrained(lambda y: y.exp().sum(), torch.zeros(2, dtype=torch.float64))
    found = solve(solver(tol=1e-8, drop=0.1), problem, y=torch.full_like(problem.y0, 800.0))
    assert found.status != "converged"


@pytest.mark.parametrize("depth", [80, 300])
def test_a_start_where_the_loss_is_nearly_linear_is_left(depth):
    # Σ e^y − t y: to the left of log t the curvature is e^y, and Newton's step overflows.
    t = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    start = -depth * torch.tensor([1.0, 0.5, 0.8], dtype=torch.float64)
    problem = unconstrained(lambda y: y.exp().sum() - t @ y, start)
    found = solve(inner.NewtonCG(tol=1e-10), problem)
    torch.testing.assert_close(found.y, t.log(), rtol=0, atol=1e-9)
    assert found.status == "converged"
