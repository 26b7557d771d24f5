"""What `hypergradient` and `check_hypergradient` tell a user."""

from __future__ import annotations

import pytest
import torch
from bilevel.inner import GradientDescent, NewtonCG
from bilevel.linear import CG, Dense, FixedPoint, Neumann

import bilevel
from bilevel import AID, ITD

from ..truth import dense_truth
from ..truth.dense_truth import relative
from ..truth.quadratics import flat, noisy_sum, quadratic, structured
from ..truth.small_problems import network, softmax


@pytest.mark.parametrize("kind", ["tensor", "dict", "tuple"])
def test_the_parts_of_a_hypergradient_have_the_users_structures(kind):
    q = quadratic(10.0)
    x, y = torch.ones(3).double(), torch.ones(5).double()
    h = bilevel.hypergradient(q.problem(kind), structured(x, kind), structured(y, kind))
    for part, like in ((h.value, x), (h.v, y), (h.y, y)):
        expected = structured(like, kind)
        assert type(part) is type(expected)
        assert flat(part).shape == flat(expected).shape
        assert not flat(part).requires_grad
    if kind == "dict":
        assert h.value["first"].shape == (1, 1)
        assert list(h.v) == ["first", "rest"]


def test_the_diagnostics_of_a_hypergradient_are_those_of_its_point():
    q, steps = quadratic(10.0), 2
    x, y = torch.ones(3).double(), torch.full((5,), 0.5).double()
    h = bilevel.hypergradient(q.problem(), x, y, method=AID(CG(steps)))
    assert torch.equal(h.y, y)
    assert h.residual == pytest.approx(float((y - q.t - q.A @ h.v).norm()), rel=1e-12)
    assert h.inner_gradient_norm == pytest.approx(
        float((q.A @ y - q.B @ x - q.c).norm()), rel=1e-12
    )
    assert h.status == "step_limit"
    assert dict(h.counts) == {
        "gc_f": 2, "gc_g": 0, "jv": 1, "hv": steps,
        "gc_f_samples": 2, "gc_g_samples": 0, "jv_samples": 1, "hv_samples": steps,
    }  # fmt: skip


def test_a_given_inner_solver_runs_first_and_is_counted():
    q = quadratic(4.0)
    x, y = torch.ones(3).double(), torch.zeros(5).double()
    inner = GradientDescent(steps=300, lr=0.4)
    h = bilevel.hypergradient(q.problem(), x, y, method=AID(CG(20, 1e-14)), inner=inner)
    assert relative(h.y, q.inner_solution(x)) < 1e-13
    assert relative(h.value, q.gradient(x)) < 1e-12
    assert h.inner_gradient_norm < 1e-12
    assert (h.counts.gc_g, h.counts.gc_f, h.counts.jv) == (300, 2, 1)


def test_batches_of_aid_are_drawn_by_role_from_the_seed():
    q = noisy_sum()
    problem, x, y = q.problem(), torch.ones(3).double(), torch.ones(5).double()
    method = AID(Dense(), bilevel.BatchSizes(outer=3, cross=2))
    h = bilevel.hypergradient(problem, x, y, method=method, seed=7)
    streams = bilevel.oracles.AutogradOracle(problem, seed=7).streams(0)
    outer, cross = streams.rows("outer", 3), streams.rows("cross", 2)
    v = torch.linalg.solve(q.A.mean(0), y - q.t[outer].mean(0))
    assert relative(h.v, v) < 1e-13
    assert relative(h.value, q.rho * (x - q.s) + q.B[cross].mean(0).T @ v) < 1e-13
    assert (h.counts.gc_f_samples, h.counts.jv_samples) == (6, 2)
    other = bilevel.hypergradient(problem, x, y, method=method, seed=8)
    assert relative(other.value, h.value) > 1e-3


def test_itd_without_inner_steps_is_an_error_with_a_remedy():
    problem = quadratic().problem()
    with pytest.raises(ValueError, match=r"ITD differentiates inner steps.*inner=bilevel\.inner"):
        bilevel.hypergradient(problem, problem.x0, problem.y0, method=ITD())
    with pytest.raises(ValueError, match=r"ITD differentiates gradient steps; NewtonCG is not"):
        bilevel.hypergradient(problem, problem.x0, problem.y0, method=ITD(), inner=NewtonCG())


@pytest.mark.parametrize(
    ("method", "inner"),
    [
        (None, None),
        (AID(CG(200, 1e-14)), None),
        (AID(Dense()), None),
        (AID(Neumann(600, 0.3)), None),
        (AID(FixedPoint(600, 0.3)), None),
        (AID(Dense()), GradientDescent(600, 0.3)),
        (ITD(), GradientDescent(600, 0.3)),
    ],
    ids=str,
)
def test_the_report_finds_exact_methods_exact(method, inner):
    problem = softmax()
    x = torch.tensor([0.5, -0.5, 0.2, 0.0]).double()
    report = bilevel.check_hypergradient(problem, x, method=method, inner=inner)
    assert report.relative_error < 1e-12
    assert report.against == "dense Hessian"
    assert report.inner_gradient_norm < 1e-13
    truth = float(dense_truth.hypergradient(problem, x).norm())
    assert report.truth_norm == pytest.approx(truth, rel=1e-12)
    assert report.estimate_norm == pytest.approx(truth, rel=1e-12)
    assert report.residual < 1e-10


@pytest.mark.parametrize("kind", ["tensor", "dict", "tuple"])
def test_the_report_gives_the_known_error_of_a_crude_method(kind):
    q, terms, lr = quadratic(10.0), 3, 0.1
    x = torch.linspace(-1, 1, 3).double()
    report = bilevel.check_hypergradient(
        q.problem(kind), structured(x, kind), method=AID(Neumann(terms, lr))
    )
    b = q.inner_solution(x) - q.t
    rest = torch.linalg.matrix_power(torch.eye(5).double() - lr * q.A, terms + 1) @ b
    error = float((q.B.T @ torch.linalg.solve(q.A, rest)).norm() / q.gradient(x).norm())
    assert error > 0.01
    assert report.relative_error == pytest.approx(error, rel=1e-9)
    assert report.residual == pytest.approx(float(rest.norm()), rel=1e-9)
    assert report.truth_norm == pytest.approx(float(q.gradient(x).norm()), rel=1e-12)


def test_the_report_gives_the_error_of_an_inner_solve_that_was_cut_short():
    problem, x = network(), network().x0
    x = problem.x_structure.unflatten(x)
    exact = bilevel.check_hypergradient(problem, x, method=AID(Dense()))
    cut = bilevel.check_hypergradient(
        problem, x, method=AID(Dense()), inner=GradientDescent(3, 0.1)
    )
    assert exact.relative_error < 1e-12
    y = bilevel.solve_inner(problem, x, GradientDescent(3, 0.1)).y
    flat_x, flat_y = problem.x_structure.flatten(x), problem.y_structure.flatten(y)
    y_star = problem.y_structure.flatten(bilevel.solve_inner(problem, x, NewtonCG(1e-13)).y)
    truth = dense_truth.hypergradient(problem, flat_x, y_star)
    error = relative(dense_truth.hypergradient(problem, flat_x, flat_y), truth)
    assert error > 0.01
    assert cut.relative_error == pytest.approx(error, rel=1e-8)


def test_the_report_prints_a_line_for_each_figure():
    q = quadratic(10.0)
    report = bilevel.check_hypergradient(q.problem(), torch.ones(3).double())
    lines = str(report).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "relative error", "norm of the estimate", "norm of the truth",
        "inner gradient norm", "linear residual",
    ]  # fmt: skip
    assert f"{report.relative_error:.2e}" in lines[0]
    assert f"{report.truth_norm:.6g}" in lines[2]
    assert "dense Hessian" in lines[2]


@pytest.mark.parametrize("level", [0.0, 3.0])  # condition numbers of about 400 and 20
def test_many_inner_variables_are_checked_by_central_differences(level):
    problem = softmax(rows=20, features=250, classes=10)
    assert problem.y_structure.size == 2500
    x = torch.full((250,), level).double()
    good = bilevel.check_hypergradient(problem, x, method=AID(CG(200, 1e-13)))
    crude = bilevel.check_hypergradient(problem, x, method=AID(CG(1)))
    assert good.against == crude.against == "central differences along 10 directions"
    assert good.relative_error < 1e-6  # what central differences can resolve
    assert 0.1 < crude.relative_error < 0.3
