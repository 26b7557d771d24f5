"""HOAG: tolerances that fall, and an outer step that adapts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import HOAG, Report, State
from bilevel.oracles import View, make
from bilevel.runs.history import in_words

from ..truth.dense_truth import relative
from ..truth.quadratics import Quadratic, quadratic


def far_away() -> Quadratic:
    """x* is tens of units from the start, far beyond the bounds of the author's code."""
    return replace(quadratic(4.0), s=torch.tensor([50.0, -40.0, 30.0]).double())


def taken(q: Quadratic, algorithm: HOAG, steps: int) -> list[tuple[State, State, Report]]:
    """Each step: the state before it, the state after it, and its report."""
    problem = q.problem()
    oracle = make(problem)
    state, path = algorithm.init(oracle, problem.x0, problem.y0), []
    for k in range(steps):
        before = state
        state, report = algorithm.step(View.of(oracle, k), before)
        path.append((before, state, report))
    return path


@pytest.mark.parametrize(
    ("decrease", "expected"),
    [
        ("exponential", [0.2, 0.2 * 0.9, 0.2 * 0.9**2, 0.2 * 0.9**3]),
        ("quadratic", [0.2, 0.2 / 4, 0.2 / 9, 0.2 / 16]),
        ("cubic", [0.2, 0.2 / 8, 0.2 / 27, 0.2 / 64]),
    ],
)
def test_tolerances_fall_as_asked_and_both_solves_keep_them(decrease, expected):
    q = quadratic(30.0, (3, 20))
    algorithm = HOAG(tolerance=0.2, decrease=decrease, outer_lr=0.2)
    assert [algorithm.epsilon(k) for k in range(4)] == pytest.approx(expected, rel=1e-12)
    for k, (before, after, report) in enumerate(taken(q, algorithm, 4)):
        inner_gradient = q.A @ after.y - q.B @ before.x - q.c
        outer_y = after.y - q.t
        at_start = q.A @ before.y - q.B @ before.x - q.c
        assert inner_gradient.norm() <= expected[k] * at_start.norm() * (1 + 1e-9)
        assert (outer_y - q.A @ after.points["v"]).norm() <= expected[k] * outer_y.norm() * (
            1 + 1e-9
        )
        assert [solve.status for solve in report.solves] == ["converged"] * 2


def test_tolerances_end_at_what_rounding_allows():
    assert HOAG(decrease="exponential").epsilon(10_000) == 1e-12


def test_a_looser_tolerance_is_really_looser():
    q = quadratic(30.0, (3, 20))
    gradients = []
    for tolerance in (0.5, 1e-6):
        ((_, after, _),) = taken(q, HOAG(tolerance=tolerance), 1)
        gradients.append(float((q.A @ after.y - q.c).norm()))
    assert gradients[0] > 1e-3
    assert gradients[1] < 1e-6 * float(q.c.norm())


def test_an_unknown_decrease_is_an_error_that_lists_the_known():
    with pytest.raises(ValueError, match=r"exponential.*quadratic.*cubic.*'linear'"):
        HOAG(decrease="linear")


def test_the_first_step_has_unit_size_and_is_taken_once():
    """L = ‖h‖/√p makes the step √p long; the author's code would take it twice."""
    q = far_away()
    ((before, after, report),) = taken(q, HOAG(tolerance=1e-8), 1)
    h = report.direction
    L = float(h.norm()) / 3**0.5
    assert relative(h, q.gradient(before.x)) < 1e-7
    assert torch.equal(after.x, before.x.sub(h, alpha=1 / L))
    assert float((after.x - before.x).norm()) == pytest.approx(3**0.5, rel=1e-12)


def test_every_accepted_step_is_one_step_of_size_one_over_l():
    for before, after, report in taken(far_away(), HOAG(tolerance=1e-6), 12):
        L = after.memory["x"]["L"]
        assert relative(after.x, before.x - report.direction / L) < 1e-14


def test_l_shrinks_by_5_percent_after_a_good_step():
    L = [after.memory["x"]["L"] for _, after, _ in taken(far_away(), HOAG(tolerance=1e-6), 4)]
    assert pytest.approx([L[0] * 0.95**k for k in range(4)], rel=1e-12) == L


def test_l_stays_after_a_step_that_gained_less_than_it_should():
    """With λ/2 < L < λ for the curvature λ of Φ, a step lowers Φ, but by less than h²/(2L)."""
    q = quadratic(4.0, (1, 4))
    L = 0.7 * float(q.curvature())
    problem = q.problem()
    oracle, algorithm = make(problem), HOAG(tolerance=1e-8)
    first, report = algorithm.step(View.of(oracle), algorithm.init(oracle, problem.x0, problem.y0))
    crafted = stepped_with(first, report.direction, L)
    after, _ = algorithm.step(View.of(oracle, 1), crafted)
    assert q.phi(crafted.x) < q.phi(problem.x0)
    assert after.memory["x"]["L"] == L
    assert torch.equal(after.memory["x"]["x"], crafted.x)


def stepped_with(first: State, h: Tensor, L: float) -> State:
    """The state after the first step along −h, had it been taken with this L."""
    memory = first.memory["x"]
    moved = {**memory, "L": L, "length": float(h.norm()) / L}
    points = {**first.points, "x": memory["x"] - h / L}
    return replace(first, points=points, memory={"x": moved})


def test_a_step_that_raises_phi_is_undone_and_tried_with_half_the_size():
    q = quadratic(4.0)
    problem = q.problem()
    oracle, algorithm = make(problem), HOAG(tolerance=1e-8)
    first, report = algorithm.step(View.of(oracle), algorithm.init(oracle, problem.x0, problem.y0))
    state, L = stepped_with(first, report.direction, 0.1), 0.1
    assert q.phi(state.x) > 10 * q.phi(problem.x0)
    while q.phi(state.x) > q.phi(problem.x0):
        (state, _), L = algorithm.step(View.of(oracle, state.step), state), 2 * L
        assert state.memory["x"]["L"] == L
        assert torch.equal(state.memory["x"]["x"], problem.x0)
        assert relative(state.x, problem.x0 - report.direction / L) < 1e-14
    assert L > 0.1
    accepted, _ = algorithm.step(View.of(oracle, state.step), state)
    assert torch.equal(accepted.memory["x"]["x"], state.x)


@pytest.mark.parametrize("stated", [lambda: quadratic(4.0), far_away], ids=["near", "far"])
def test_the_adaptive_step_lowers_phi_all_the_way_to_the_solution_without_clipping(stated):
    q, algorithm = stated(), HOAG(tolerance=1e-4, decrease="exponential")
    path = [after for _, after, _ in taken(q, algorithm, 100)]
    values = [float(q.phi(state.memory["x"]["x"])) for state in path]
    for k, (before, after) in enumerate(pairwise(values)):
        # Values that differ by less than the inexact solves explain may come in any order.
        assert after <= before + 10 * algorithm.epsilon(k)
    assert values[-1] - float(q.phi(q.solution())) < 1e-8
    assert relative(path[-1].x, q.solution()) < 1e-4
    assert all(
        state.memory["x"]["L"] < 1e3 for state in path
    )  # it never shrinks its steps to nothing


def test_a_fixed_outer_step_or_another_optimiser_replaces_the_adaptive_one():
    ((before, after, report),) = taken(quadratic(), HOAG(outer_lr=0.05), 1)
    assert torch.equal(after.x, before.x.sub(report.direction, alpha=0.05))
    assert after.memory == {"x": {}}
    ((before, after, _),) = taken(quadratic(), HOAG(outer=bilevel.updates.Adam(0.05)), 1)
    assert (after.x - before.x).abs().tolist() == pytest.approx([0.05] * 3, rel=1e-6)


def test_an_inner_solver_of_ones_own_replaces_l_bfgs():
    q = quadratic(4.0)
    algorithm = HOAG(inner=bilevel.inner.GradientDescent(300, 0.4), tolerance=1e-10)
    ((before, after, report),) = taken(q, algorithm, 1)
    assert relative(after.y, q.inner_solution(before.x)) < 1e-13
    assert in_words(report)["inner_steps"] == 300
