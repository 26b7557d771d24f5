"""F2SA-p, F2BA, AccF2BA, F3SA, V-PBGD, MEHA, BOME and BVFSM: where they come to rest, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from bilevel.inner import GradientDescent, Steps
from bilevel.updates import Look, Momentum, Nesterov, Restarted
from torch import Tensor

import bilevel
from bilevel.algorithms import BOME, BVFSM, F2BA, F3SA, MEHA, VPBGD, AccF2BA, F2SACentral
from bilevel.hypergradients import CentralValue, Stand
from bilevel.hypergradients.central_value import central
from bilevel.oracles import View, make
from bilevel.problem.examples import halves

from ..truth.dense_truth import hypergradient, relative
from ..truth.quadratics import Quadratic, noisy_sum, quadratic
from ..truth.small_problems import softmax

Q = quadratic(3.0)
RATES: dict[str, Any] = {"inner_lr": 0.3, "outer_lr": 0.1}


def rest(q: Quadratic, penalty: float, closeness: float = 0.0) -> dict[str, Tensor]:
    """Where x, the penalised p and the plain y stay, from the three equations, which are linear.

    y solves Ay − Bx − c + (y − p)·closeness = 0; p the same with (p − t)/λ for the last term, and
    −(p − y)·closeness; x solves ρ(x − s) = λB'(p − y).
    """
    m, n = q.B.shape
    eye, unit = torch.eye(m, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    near = closeness * eye
    rows = [
        torch.cat([-q.B, -near, q.A + near], 1),
        torch.cat([-q.B, q.A + eye / penalty - near, near], 1),
        torch.cat([q.rho * unit, -penalty * q.B.T, penalty * q.B.T], 1),
    ]
    found = torch.linalg.solve(torch.cat(rows), torch.cat([q.c, q.c + q.t / penalty, q.rho * q.s]))
    return {"x": found[:n], "p": found[n : n + m], "y": found[n + m :]}


# Where they rest


@pytest.mark.parametrize(
    ("algorithm", "names", "closeness"),
    [
        (F3SA(multiplier=20.0, **RATES, batch=None), "xyp", 0.0),
        (VPBGD(multiplier=20.0, **RATES, batch=None), "xzy", 0.0),
        (MEHA(multiplier=20.0, proximity=4.0, **RATES), "xzy", 0.25),
    ],
    ids=["f3sa", "v-pbgd", "moreau"],
)
def test_a_single_loop_stays_where_its_penalised_problem_is_solved(
    algorithm: Any, names: str, closeness: float
) -> None:
    truth, problem = rest(Q, 20.0, closeness), Q.problem()
    points = dict(zip(names, (truth["x"], truth["y"], truth["p"]), strict=True))
    state = algorithm.init(make(problem), problem.x0, problem.y0)
    state = replace(state, points={**state.points, **points})
    after, _ = algorithm.step(View.of(make(problem)), state)
    for name, point in points.items():
        assert float((after.points[name] - point).norm()) < 1e-12
    moved = replace(state, points={**state.points, "x": points["x"] + 1})
    assert float((algorithm.step(View.of(make(problem)), moved)[0].x - moved.x).norm()) > 1e-3


@pytest.mark.parametrize(
    "algorithm",
    [
        F2BA(multiplier=20.0, **RATES, inner_steps=2),
        AccF2BA(multiplier=20.0, **RATES, inner_steps=2),
    ],
    ids=["f2ba", "acc-f2ba"],
)
def test_f2ba_stays_there_too(algorithm: Any) -> None:
    truth, problem = rest(Q, 20.0), Q.problem()
    points = {"x": truth["x"], "y": truth["y"], "v": 20.0 * (truth["y"] - truth["p"])}
    state = algorithm.init(make(problem), problem.x0, problem.y0)
    state = replace(state, points={**state.points, **points})
    after, _ = algorithm.step(View.of(make(problem)), state)
    assert all(float((after.points[n] - p).norm()) < 1e-12 for n, p in points.items())


@pytest.mark.parametrize("closeness", [0.0, 0.25], ids=["value function", "moreau envelope"])
def test_that_place_nears_the_solution_as_one_over_the_penalty(closeness: float) -> None:
    errors = [relative(rest(Q, penalty, closeness)["x"], Q.solution()) for penalty in (50.0, 500.0)]
    assert errors[1] < 0.01
    assert 8 < errors[0] / errors[1] < 12


@pytest.mark.parametrize(
    "algorithm",
    [
        F3SA(multiplier=20.0, inner_lr=0.4, outer_lr=0.1, batch=None),
        VPBGD(multiplier=20.0, inner_lr=0.4, outer_lr=0.02, batch=None),
        MEHA(multiplier=20.0, proximity=4.0, inner_lr=0.4, outer_lr=0.02),
        F2BA(multiplier=20.0, inner_lr=0.4, inner_steps=4, outer_lr=0.3),
        AccF2BA(multiplier=20.0, inner_lr=0.3, inner_steps=6, beta=0.2, outer=Restarted(0.2, 0.7)),
    ],
    ids=["f3sa", "v-pbgd", "moreau", "f2ba", "acc-f2ba"],
)
def test_they_get_there(algorithm: Any) -> None:
    truth = rest(Q, 20.0, 0.25 if isinstance(algorithm, MEHA) else 0.0)
    steps = 500 if isinstance(algorithm, F3SA | VPBGD | MEHA) else 60
    result = bilevel.minimize(Q.problem(), algorithm, steps=steps, evaluate_every=steps)
    assert relative(result.x, truth["x"]) < 1e-4


# Central differences


@pytest.mark.parametrize(("order", "fall"), [(2, 4), (4, 16), (6, 64)])
def test_the_error_of_f2sa_p_falls_as_the_order_says(order: int, fall: float) -> None:
    problem, x = Q.problem(), torch.linspace(-0.5, 0.5, 3, dtype=torch.float64)
    errors = []
    for nu in (0.2, 0.1):
        oracle, method = make(problem), CentralValue(nu, order)
        stand = Stand(x, problem.y0)
        found = method.estimate(oracle, stand, GradientDescent(120, 0.4), oracle.streams(0))
        errors.append(relative(found.value, Q.gradient(x)))
    assert errors[0] < 0.05
    assert 0.6 * fall < errors[0] / errors[1] < 1.7 * fall


def test_it_is_right_where_the_curvature_changes() -> None:
    problem = softmax()
    x = torch.linspace(-0.5, 0.5, len(problem.x0), dtype=torch.float64)
    oracle, stand = make(problem), Stand(x, problem.y0)
    found = CentralValue(0.01).estimate(
        oracle, stand, GradientDescent(1500, 2.0), oracle.streams(0)
    )
    forward = bilevel.ValueFunction(100.0).estimate(
        oracle, stand, GradientDescent(1500, 2.0), oracle.streams(0)
    )
    errors = [relative(e.value, hypergradient(problem, x)) for e in (found, forward)]
    assert errors[0] < errors[1] / 20


@pytest.mark.parametrize("order", [2, 4])
def test_from_its_own_v_and_y_few_steps_are_enough(order: int) -> None:
    problem, x = Q.problem(), torch.ones(3).double()
    oracle, method = make(problem), CentralValue(0.02, order)
    many, few = GradientDescent(150, 0.4), GradientDescent(2, 0.4)
    whole = method.estimate(oracle, Stand(x, problem.y0), many, oracle.streams(0))
    again = method.estimate(oracle, Stand(x, whole.inner.y, whole.linear.v), few, oracle.streams(0))
    cold = method.estimate(oracle, Stand(x, whole.inner.y), few, oracle.streams(0))
    assert relative(again.value, whole.value) < 1e-3 < relative(cold.value, whole.value)
    assert relative(whole.linear.v, Q.linear_solution(x)) < 1e-3


def test_the_coefficients_are_those_of_the_tables() -> None:
    assert central(8) == pytest.approx([4 / 5, -1 / 5, 4 / 105, -1 / 280])
    with pytest.raises(ValueError, match="order must be even, got 3"):
        F2SACentral(order=3)


def test_all_copies_see_the_same_rows() -> None:
    """With no outer loss to tell them apart, they stay together on batches, and ∇x g cancels."""
    rows = noisy_sum(rows=20).problem()
    flat = bilevel.Problem(
        outer=lambda x, y, batch: 1e-12 * y.square().sum(),
        inner=rows.inner,
        x0=rows.x0,
        y0=rows.y0,
        outer_data=torch.zeros(20, 1).double(),
        inner_data=rows.inner_data,
    )
    oracle = make(flat)
    inner = bilevel.inner.SGD(5, 0.1, 3)
    found = CentralValue(0.1, 4, 3).estimate(
        oracle, Stand(flat.x0 + 1, flat.y0), inner, oracle.streams(0)
    )
    assert float(found.value.norm()) < 1e-9


def test_momentum_inside_is_taken_for_both_and_a_kept_one_refused() -> None:
    problem, x = Q.problem(), torch.ones(3).double()
    oracle, method = make(problem), CentralValue(0.01)
    fast = Steps(Nesterov(0.3, 0.3), 80)
    found = method.estimate(oracle, Stand(x, problem.y0), fast, oracle.streams(0))
    assert relative(found.value, Q.gradient(x)) < 1e-3
    kept = Steps(Momentum(0.1), 5, keep=True)
    with pytest.raises(ValueError, match=r"Steps is not made of them: use .*keep=False"):
        method.estimate(oracle, Stand(x, problem.y0), kept, oracle.streams(0))


# Restarts


def test_restarted_is_nesterov_s_method_until_it_has_gone_far() -> None:
    """With t steps since a restart, t Σ‖Δx‖² > B² starts afresh, and B shrinks."""
    gradient, update = torch.tensor([1.0, 0.0]).double(), Restarted(1.0, theta=0.25, bound=5.0)
    w = torch.zeros(2).double()
    memory = update.init(w)
    w, memory = update.apply(w, gradient, memory, Look(0))  # x = −1, Δ = −1: 1·1 ≤ 25
    assert w.tolist() == [-1.75, 0.0]
    w, memory = update.apply(w, gradient, memory, Look(1))  # x = −2.75: 2·(1 + 1.75²) ≤ 25
    assert w.tolist() == [-2.75 - 0.75 * 1.75, 0.0]
    w, memory = update.apply(w, gradient, memory, Look(2))  # Δ = −2.3125: 3·9.41 > 25
    assert w.tolist() == memory["x"].tolist() == [-5.0625, 0.0]
    assert (memory["since"], memory["far"], memory["bound"]) == (0, 0.0, 4.95)


# Barriers


def test_a_step_of_bome_lowers_the_gap_at_its_rate_and_f_alone_where_that_does() -> None:
    problem, oracle = Q.problem(), make(Q.problem())
    for seed, rate in ((0, 0.5), (1, 3.0), (2, 0.1), (3, 1.0)):
        algorithm = BOME(inner_steps=40, inner_lr=0.3, outer_lr=0.1, rate=rate)
        generator = torch.Generator().manual_seed(seed)
        x, y = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (3, 5))
        state = algorithm.init(oracle, x, y)
        d = algorithm.directions(oracle, state, oracle.streams(0)).by_point
        best = Q.inner_solution(x)
        q_x, q_y = -Q.B.T @ (y - best), Q.A @ y - Q.B @ x - Q.c
        f_x, f_y = Q.rho * (x - Q.s), y - Q.t
        size, falls = float(q_x @ q_x + q_y @ q_y), float(d["x"] @ q_x + d["y"] @ q_y)
        plain = float(f_x @ q_x + f_y @ q_y)
        assert falls == pytest.approx(max(rate * size, plain), rel=1e-4)
        if plain > rate * size:
            assert relative(d["y"], f_y) < 1e-12
    assert problem is not None


def test_bome_nears_the_solution_as_its_steps_get_shorter() -> None:
    """y stays off the inner solution by the order of a step; a large T hides its own share."""
    errors = []
    for length, T in ((1, 12), (3, 40)):
        algorithm = BOME(inner_steps=T, inner_lr=0.3 / length, outer_lr=0.2 / length)
        steps = 60 * length
        result = bilevel.minimize(Q.problem(), algorithm, steps=steps, evaluate_every=steps)
        errors.append(relative(result.x, Q.solution()))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 0.05


def test_bvfsm_stays_inside_its_barrier_and_nears_the_solution_as_it_falls() -> None:
    q, errors = quadratic(2.0, (1, 2)), []
    for barrier in (1e-2, 1e-4):
        algorithm = BVFSM(inner_steps=10, inner_lr=0.5, outer_lr=0.1, barrier=barrier, ridge=0.0)
        seen: list[Any] = []
        result = bilevel.minimize(
            q.problem(), algorithm, steps=50, callbacks=[lambda p, s=seen: s.append(p.state)]
        )
        oracle, x = make(q.problem()), q.problem().x0
        for state in seen:
            y, z = state.points["y"], state.points["z"]
            gap = oracle.inner(x, z).value() + barrier - oracle.inner(x, y).value()
            assert float(gap) > 0
            x = state.x
        errors.append(relative(result.x, q.solution()))
    assert 8 < errors[0] / errors[1] < 12  # as the root of σ
    assert errors[1] < 0.03


def test_a_chapter_of_bome_begins_apart_from_the_inner_solution_and_so_along_the_hypergradient():
    """At the solution itself q is zero, and x would follow f alone, which does not depend on it."""
    problem, rate = halves(), 100.0
    oracle = make(problem)
    points = {"x": problem.x0, "y": torch.zeros(2), "v": -torch.ones(2)}  # y* = 2x, v = H⁻¹∇y f
    method = BOME(inner_steps=40, inner_lr=0.25, rate=rate)
    state = method.begin(oracle, points)
    assert state.y.tolist() == pytest.approx([1 / rate] * 2)
    _, report = method.step(View.of(oracle), state)
    # λ = η − ⟨∇f, ∇q⟩ / ‖∇q‖², of which the second part is a fifth of η here; ∇Φ(0) = −4.
    expected = -4 * (1 + (1 - 1 / rate) / 5)
    assert report.direction.tolist() == pytest.approx([expected] * 2, rel=1e-5)
