"""What is stated as a bound or as exact is never violated: softmax regression and quadratics.

Truth is the dense Hessian, cross derivative and gradient by autograd on the losses themselves.
"""

import numpy as np
import pytest
import torch

import bilevel
from bilevel.theory import Kind, estimate

from ..models.softmax.softmax_cases import LEARNED, make_case
from ..truth.theory_problems import cross, hessian, outer_gradient, quadratic, size

KINDS = [
    pytest.param(learned, sparse, id=f"{learned[0]}-{type(learned[1]).__name__}-{form}")
    for learned in LEARNED
    for sparse, form in ((False, "dense"), (True, "csr"))
]
SHAPE = (8, 6, 3, 3)  # training and validation rows, features, classes


def dense(problem):
    """The same losses on dense rows, which autograd differentiates twice."""
    form = problem.model.form
    if form.train.layout == torch.strided:
        return problem
    return bilevel.softmax_problem(
        (form.train.to_dense(), form.train_labels),
        (form.validation.to_dense(), form.validation_labels),
        weights=form.weights,
        penalty=form.penalty,
        classes=form.classes,
    )


def cases(learned, sparse, count):
    """Points with small and with large logits, and a second W at some distance."""
    for seed in range(count):
        scale = (0.1, 1.0, 5.0)[seed % 3]
        case = make_case(seed, SHAPE, learned, sparse=sparse, logits=scale)
        yield case, dense(case.problem), case.y + scale * case.v * 0.5


def structured(problem, x, y):
    return problem.x_structure.unflatten(x), problem.y_structure.unflatten(y)


@pytest.mark.parametrize(("learned", "sparse"), KINDS)
def test_softmax_bounds_hold_at_random_points(learned, sparse):
    for case, problem, other in cases(learned, sparse, 3):
        c = estimate(case.problem, *structured(case.problem, case.x, case.y))
        assert c.rigorous
        H, C = hessian(problem, case.x, case.y), cross(problem, case.x, case.y)
        there_H, there_C = hessian(problem, case.x, other), cross(problem, case.x, other)
        f_y, there_f_y = (outer_gradient(problem, case.x, y) for y in (case.y, other))
        distance = float((other - case.y).norm())
        for matrix in (H, there_H):
            eigenvalues = torch.linalg.eigvalsh(matrix)
            assert c.mu.value <= eigenvalues[0] * (1 + 1e-9)
            assert eigenvalues[-1] <= c.L_g.value * (1 + 1e-9)
        assert size(C) <= c.cross.value * (1 + 1e-9)
        assert size(there_H - H) <= c.rho.value * distance
        assert size(there_C - C) <= c.tau.value * distance * (1 + 1e-9)
        assert (there_f_y - f_y).norm() <= c.L_fy.value * distance
        assert max(f_y.norm(), there_f_y.norm()) <= c.M.value


@pytest.mark.parametrize(("learned", "sparse"), KINDS)
def test_softmax_bound_of_how_the_cross_derivative_moves_with_x_holds_at_the_point(learned, sparse):
    case = make_case(1, SHAPE, learned, sparse=sparse)
    problem, found = dense(case.problem), []
    for direction in (*torch.eye(len(case.x)).double(), case.x / case.x.norm()):
        ends = [cross(problem, case.x + sign * 1e-5 * direction, case.y) for sign in (1, -1)]
        found.append(size(ends[0] - ends[1]) / 2e-5)
    bound = estimate(case.problem, *structured(case.problem, case.x, case.y)).tau_x.value
    assert 0.5 * bound <= max(found) <= bound * (1 + 1e-6)


def test_the_bounds_of_large_learned_penalties_are_reached():
    """Where the penalties outweigh the data, μ, τ and the cross norm leave no room."""
    case = make_case(0, SHAPE, ("none", bilevel.PerFeature()))
    x = torch.full_like(case.x, 12.0)
    c = estimate(case.problem, *structured(case.problem, x, case.y))
    H, C = hessian(case.problem, x, case.y), cross(case.problem, x, case.y)
    assert c.mu.value == pytest.approx(float(torch.linalg.eigvalsh(H)[0]), rel=1e-3)
    assert c.cross.value == pytest.approx(size(C), rel=1e-12)
    assert c.L_g.value == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-3)


def test_the_gram_bound_of_two_balanced_classes_is_reached():
    """At W = 0 with two classes A = ½ (I − 11'/2) has the norm ½, and L_g is exact."""
    X = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]).double()
    labels = torch.tensor([0, 1, 0])
    problem = bilevel.softmax_problem((X, labels), (X, labels), penalty=bilevel.PerFeature())
    x, W = torch.zeros(2).double(), torch.zeros(2, 2).double()
    truth = torch.linalg.eigvalsh(hessian(problem, x, W.reshape(-1)))
    assert estimate(problem, x, W).L_g.value == pytest.approx(float(truth[-1]), rel=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_float32_softmax_bounds_are_those_of_float64(sparse):
    found = []
    for dtype in (np.float64, np.float32):
        case = make_case(3, SHAPE, ("sigmoid", bilevel.PerFeature()), sparse=sparse, dtype=dtype)
        found.append(estimate(case.problem, *structured(case.problem, case.x, case.y)))
    for name in ("mu", "L_g", "cross", "L_fy", "M", "rho", "tau", "tau_x"):
        assert found[1][name].value == pytest.approx(found[0][name].value, rel=1e-4)


@pytest.mark.parametrize("rows", [None, 7])
@pytest.mark.parametrize("seed", range(4))
def test_constants_of_quadratics_are_exact(seed, rows):
    problem = quadratic(seed, kappa=10.0, rows=rows, r=0.7)
    x, y = torch.ones(3).double(), torch.ones(5).double()
    c, H = estimate(problem, x, y), hessian(problem, x, y)
    eigenvalues = torch.linalg.eigvalsh(H)
    assert c.mu.value == pytest.approx(float(eigenvalues[0]), rel=1e-12)
    assert c.L_g.value == pytest.approx(float(eigenvalues[-1]), rel=1e-12)
    assert c.cross.value == pytest.approx(size(cross(problem, x, y)), rel=1e-12)
    assert c.L_xx.value == 0.7
    assert [c[name].value for name in ("L_fx", "rho", "tau", "tau_x")] == [0, 0, 0, 0]
    outer = torch.autograd.functional.hessian(lambda y: problem.outer_loss(x, y), y)
    assert c.L_fy.value == pytest.approx(size(outer), rel=1e-12)
    exact = {name for name in c if c[name].kind is Kind.EXACT}
    assert exact == set(c) - {"M", "sigma"} | ({"sigma"} if rows is None else set())
    assert c.rigorous


def test_a_quadratic_that_is_not_convex_has_no_strong_convexity():
    H, one = torch.diag(torch.tensor([-1.0, 2.0]).double()), torch.eye(2).double()
    problem = bilevel.quadratic_problem(H, one, one[0], one, one[1])
    constants = estimate(problem, one[0], one[0])
    assert constants.mu.value == 0
    assert constants.kappa == float("inf")
