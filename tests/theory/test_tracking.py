"""The tracking lemma of AID-BiO, and what warm starts save."""

import itertools
from dataclasses import replace

import pytest
import torch

import bilevel
from bilevel.algorithms import AIDBiO
from bilevel.oracles import View, make
from bilevel.theory import plan

from ..truth.small_problems import softmax
from ..truth.theory_problems import bent, hessian, normal, quadratic, truth


def value_of(made, letter):
    (found,) = [row.value for row in made.rows if row.letter == letter]
    return found


def distances(problem, states):
    """‖y⁰ − y*‖² + ‖v⁰ − v*‖² before each step, and ‖∇Φ‖² there."""
    for state in states:
        at = truth(problem, state.x)
        v = state.points.get("v", torch.zeros_like(at.v))
        squares = (state.y - at.y).square().sum() + (v - at.v).square().sum()
        yield float(squares), float(at.gradient.square().sum())


def states(problem, algorithm, steps, seed):
    """From y and v far off, and x somewhere."""
    generator, oracle = torch.Generator().manual_seed(seed), make(problem)
    x, y = normal(generator, len(problem.x0)), 3 * normal(generator, len(problem.y0))
    state = algorithm.init(oracle, x, y)
    v = 3 * normal(generator, len(problem.y0))
    state = replace(state, points={**state.points, "v": v})
    for _ in range(steps):
        yield state
        state, _ = algorithm.step(View.of(oracle, state.step), state)
    yield state


@pytest.mark.parametrize("seed", range(2))
def test_the_tracking_error_halves_up_to_the_movement_of_x_with_the_plans_d_and_n(seed):
    made = bent(seed)
    asked = plan(made.constants(x_norm=4.0), "aid-bio", epsilon=0.1)
    omega, problem = value_of(asked, "Ω"), made.problem()
    seen = list(distances(problem, states(problem, AIDBiO(**asked.settings), 4, seed)))
    for (before, squared), (after, _) in itertools.pairwise(seen):
        assert after <= before / 2 + omega * squared


@pytest.mark.parametrize("kappa", [2.0, 20.0])
def test_where_x_stands_still_the_tracking_error_falls_below_a_half_to_the_k(kappa):
    problem = quadratic(0, kappa)
    constants = bilevel.theory.estimate(problem, problem.x0, problem.y0)
    settings = plan(constants, "aid-bio", epsilon=0.1).settings
    algorithm = AIDBiO(**{**settings, "outer_lr": 1e-300})
    errors = [error for error, _ in distances(problem, states(problem, algorithm, 4, 0))]
    for k, error in enumerate(errors):
        assert error <= errors[0] / 2**k + 1e-24


def test_with_few_steps_the_tracking_error_still_contracts_linearly_from_warm_starts():
    """D = 3 and N = 2: a fixed share is left at each outer step, and none of it comes back."""
    problem, x = quadratic(1, kappa=5.0), torch.ones(3).double()
    algorithm = AIDBiO(inner_steps=3, inner_lr=0.2, cg_steps=2, outer_lr=1e-300)
    oracle, at = make(problem), truth(problem, x)
    state, errors = algorithm.init(oracle, x, at.y + 1), []
    for _ in range(8):
        state, _ = algorithm.step(View.of(oracle, state.step), state)
        errors.append(float((state.y - at.y).norm()))
    ratios = torch.tensor(errors[1:]) / torch.tensor(errors[:-1])
    assert ratios.max() <= 0.8**3 + 1e-9
    assert (state.points["v"] - at.v).norm() < 1e-2 * at.v.norm()
    cold = replace(algorithm, warm_start=False)
    state = cold.init(oracle, x, at.y + 1)
    for _ in range(8):
        state, _ = cold.step(View.of(oracle, state.step), state)
    assert float((state.y - at.y).norm()) == pytest.approx(errors[0])


PROBLEMS = {
    "quadratic": lambda: (quadratic(0, kappa=30.0, sizes=(5, 20)), 0.05),
    "softmax": lambda: (softmax(40, 6, 3, penalty=bilevel.PerFeature()), 0.5),
}


def counts(problem, outer_lr, tol, **changes):
    algorithm = AIDBiO(
        inner=bilevel.inner.LBFGS(tol=tol), cg_steps=500, cg_tol=tol, outer_lr=outer_lr, **changes
    )
    result = bilevel.minimize(problem, algorithm, steps=15)
    assert "not_converged" not in result.message
    return result.counts


@pytest.mark.parametrize("kind", PROBLEMS)
def test_warm_starts_of_y_and_v_reach_the_same_tolerances_for_less(kind):
    problem, outer_lr = PROBLEMS[kind]()
    warm, cold = (counts(problem, outer_lr, 1e-4, warm_start=w) for w in (True, False))
    assert warm.gc_g < cold.gc_g
    assert warm.hv < cold.hv


def gradient_steps(H, b, start, tol):
    """How many steps of size 1/L bring ‖Hy − b‖ to tol."""
    y, alpha, count = start, 1 / float(torch.linalg.eigvalsh(H)[-1]), 0
    while float((H @ y - b).norm()) > tol:
        y, count = y - alpha * (H @ y - b), count + 1
    return y, count


def test_warm_started_gradient_descent_needs_a_share_of_the_cold_steps_that_falls_with_x():
    """As x converges, so do y*(x_k): the analysis needs a constant D, not one that grows."""
    problem = quadratic(2, kappa=10.0)
    form, x, y = problem.model, torch.full((3,), 5.0).double(), problem.y0
    H, warm, cold = hessian(problem, x, y), [], []
    for _ in range(30):
        b = form.J @ x + form.c
        y, needed = gradient_steps(H, b, y, tol=1e-6)
        warm.append(needed)
        cold.append(gradient_steps(H, b, problem.y0, tol=1e-6)[1])
        x = x - 1.5 * form.hypergradient(x)
    assert warm[0] == cold[0]
    assert sum(warm) < 0.6 * sum(cold)
    assert warm[-1] < 0.2 * cold[-1]
