"""The lemmas' bounds against the truth, over random problems."""

import math

import numpy as np
import pytest
import torch
from bilevel.inner import GradientDescent
from bilevel.linear import CG

import bilevel
from bilevel.hypergradients import Stand
from bilevel.oracles import make
from bilevel.theory import estimate
from bilevel.theory.formulas import (
    Letters,
    aid_error,
    itd_error,
    sensitivity,
    smoothness,
    solution_drift,
)

from ..truth.small_problems import softmax
from ..truth.theory_problems import bent, inner_solution, linear_solution, normal, quadratic, truth

SOFTMAX = {
    "weights": {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.Ridge(0.05)},
    "penalties": {"penalty": bilevel.PerFeature()},
    "both": {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.PerWeight()},
}


def softmax_letters(problem, x, y):
    unflatten = problem.x_structure.unflatten
    return Letters.of(estimate(problem, unflatten(x), problem.y_structure.unflatten(y)))


def family(kind, seed):
    """A problem, a point x, and the letters there."""
    generator = torch.Generator().manual_seed(100 + seed)
    if kind == "bent":
        made, x = bent(seed), normal(generator, 3)
        return made.problem(), x, Letters.of(made.constants(float(x.norm())))
    if kind == "quadratic":
        problem, x = quadratic(seed, kappa=3.0 + 10 * seed), normal(generator, 3)
        return problem, x, Letters.of(estimate(problem, x, problem.model.solution(x)))
    problem = softmax(12, 3, 3, seed, **SOFTMAX[kind])
    x = normal(generator, len(problem.x0))
    return problem, x, softmax_letters(problem, x, inner_solution(problem, x))


KINDS = ("bent", "quadratic", *SOFTMAX)


@pytest.mark.parametrize("seed", range(3))
def test_smoothness_and_drift_bound_every_pair_of_points_of_a_ball(seed):
    made, generator = bent(seed), torch.Generator().manual_seed(seed)
    problem, c = made.problem(), Letters.of(made.constants(x_norm=2.0))
    for distance in (0.01, 1.0):
        x = torch.nn.functional.normalize(normal(generator, 3), dim=0)
        other = x + distance * torch.nn.functional.normalize(normal(generator, 3), dim=0)
        here, there = truth(problem, x), truth(problem, other)
        assert (there.gradient - here.gradient).norm() <= smoothness(c) * distance
        assert (there.v - here.v).norm() <= solution_drift(c) * distance


@pytest.mark.parametrize("r", [0.0, 0.5, 200.0])
@pytest.mark.parametrize("kappa", [1.0, 2.0, 30.0])
def test_smoothness_bounds_the_curvature_of_quadratics_also_where_x_brings_most_of_it(kappa, r):
    problem = quadratic(0, kappa, r=r)
    form, axes = problem.model, torch.eye(3).double()
    rows = [form.hypergradient(x) - form.hypergradient(torch.zeros(3).double()) for x in axes]
    curvature = float(torch.linalg.eigvalsh(torch.stack(rows))[-1])
    c = Letters.of(estimate(problem, axes[0], form.solution(axes[0])))
    assert curvature <= smoothness(c)
    M = torch.linalg.solve(form.H, form.J)  # v* = H⁻¹F(y* − d)
    assert torch.linalg.matrix_norm(torch.linalg.solve(form.H, form.F @ M), 2) <= solution_drift(c)


@pytest.mark.parametrize("kind", SOFTMAX)
def test_smoothness_and_drift_bound_softmax_problems_along_a_segment(kind):
    """The constants are those of x, so their greatest over the way from x to x' is taken."""
    problem, x, _ = family(kind, 0)
    step = 0.5 * normal(torch.Generator().manual_seed(0), len(x))
    points = [truth(problem, x + t * step) for t in (0.0, 1.0)]
    letters = []
    for t in torch.linspace(0, 1, 4):
        y = inner_solution(problem, x + t * step)
        letters.append(softmax_letters(problem, x + t * step, y))
    gradients, solutions = (
        (points[1].gradient - points[0].gradient).norm(),
        (points[1].v - points[0].v).norm(),
    )
    assert gradients <= max(map(smoothness, letters)) * step.norm()
    assert solutions <= max(map(solution_drift, letters)) * step.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_y_off_the_solution_is_felt_at_most_by_the_sensitivity(kind):
    for seed in range(2):
        problem, x, c = family(kind, seed)
        at, generator = truth(problem, x), torch.Generator().manual_seed(seed)
        for distance in (0.01, 1.0):
            y = at.y + distance * torch.nn.functional.normalize(normal(generator, len(at.y)), dim=0)
            if kind in SOFTMAX:
                c = softmax_letters(problem, x, y)
            value = bilevel.hypergradient(
                problem,
                problem.x_structure.unflatten(x),
                problem.y_structure.unflatten(y),
                bilevel.AID(bilevel.linear.Dense()),
            ).value
            off = problem.x_structure.flatten(value) - at.gradient
            assert off.norm() <= sensitivity(c) * distance
            assert (linear_solution(problem, x, y) - at.v).norm() <= (
                c.kappa + c.rho * c.M / c.mu**2
            ) * distance


def estimated(problem, x, y, v, method, D, alpha):
    oracle = make(problem)
    inner = GradientDescent(D, alpha)
    return method.estimate(oracle, Stand(x, y, v), inner, oracle.streams(0))


@pytest.mark.parametrize("kind", KINDS)
def test_aid_error_after_d_and_n_steps_is_below_the_lemma(kind):
    for seed in range(2):
        problem, x, c = family(kind, seed)
        at, generator = truth(problem, x), torch.Generator().manual_seed(seed)
        alpha, away = 1 / c.L, normal(generator, 2, len(at.y))
        for D, N in ((1, 1), (1, 30), (5, 3), (60, 5)):
            for scale in (1e-3, 1.0):
                y, v = at.y + scale * away[0], at.v + away[1]
                found = estimated(problem, x, y, v, bilevel.AID(CG(N)), D, alpha)
                if kind in SOFTMAX:
                    c = softmax_letters(problem, x, found.inner.y)
                    c = Letters(**{**vars(c), "L": max(c.L, 1 / alpha)})
                distances = float((y - at.y).norm()), float((v - at.v).norm())
                bound = aid_error(c, alpha, D, N, *distances)
                assert (found.value - at.gradient).norm() <= bound


@pytest.mark.parametrize("kind", KINDS)
def test_itd_error_after_d_steps_is_below_the_lemma(kind):
    for seed in range(2):
        problem, x, c = family(kind, seed)
        at, generator = truth(problem, x), torch.Generator().manual_seed(seed)
        for scale in (1e-3, 1.0):
            y = at.y + scale * normal(generator, len(at.y))
            for D in (1, 3, 40):
                value = estimated(problem, x, y, None, bilevel.ITD(), D, 1 / c.L).value
                bound = itd_error(c, 1 / c.L, D, float((y - at.y).norm()))
                assert (value - at.gradient).norm() <= bound


def slope(D, errors):
    """Of the logarithms, by least squares."""
    return np.polyfit(D, np.log(errors), 1)[0]


@pytest.mark.parametrize("kind", ["bent", "quadratic"])
def test_itd_error_decays_exponentially_with_the_contraction_of_gradient_descent(kind):
    """The rate is 1 − αμ, up to the factor D that curvature brings; the lemma's is its root."""
    for seed in range(2):
        problem, x, c = family(kind, seed)
        at, alpha = truth(problem, x), 1 / c.L
        D = np.array([20, 30, 40, 50])
        y = at.y + 1.0
        errors = [
            float(
                (estimated(problem, x, y, None, bilevel.ITD(), d, alpha).value - at.gradient).norm()
            )
            for d in D
        ]
        q = 1 - alpha * c.mu
        assert slope(D, errors / D) <= math.log(q) + 1e-3
        bounds = [itd_error(c, alpha, d, float((y - at.y).norm())) for d in D]
        assert math.log(q) <= slope(D, bounds) <= math.log(q) / 2 + 1e-9


def test_gradient_descent_contracts_by_one_minus_alpha_mu_a_step():
    """Where the paper has the root of it: valid, but twice as many steps as needed."""
    for seed in range(3):
        problem, x, c = family("bent", seed)
        at, y = truth(problem, x).y, normal(torch.Generator().manual_seed(seed), 4)
        start = float((y - at).norm())
        for D in (1, 5, 25):
            found = bilevel.solve_inner(problem, x, GradientDescent(D, 1 / c.L), y)
            assert (found.y - at).norm() <= (1 - c.mu / c.L) ** D * start * (1 + 1e-9)
