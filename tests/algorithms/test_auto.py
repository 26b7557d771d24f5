"""No number given: the solves are as accurate as asked, the steps fit, nothing diverges."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from bilevel.inner import GradientDescent, Measured, NewtonCG
from bilevel.linear import CG, if_known, jacobi
from bilevel.updates import AdaGrad, Look, MeasuredDescent

import bilevel
from bilevel.algorithms import AIDBiO, ITDBiO, StocBiO
from bilevel.hypergradients import AccurateAID, Stand
from bilevel.oracles import CountingOracle, View, make

from ..truth.dense_truth import hypergradient as truth
from ..truth.dense_truth import inner_solution
from ..truth.quadratics import noisy_sum
from ..truth.quadratics import quadratic as known_quadratic
from ..truth.small_problems import cleaning, softmax
from ..truth.theory_problems import normal, quadratic

ROUNDS = NewtonCG(tol=1e-30, drop=0.1, preconditioner=if_known)
FAMILIES: dict[str, Any] = {
    "well conditioned": lambda seed: quadratic(seed, 5.0, (6, 12)),
    "κ = 100": lambda seed: quadratic(seed, 100.0, (10, 40)),
    "softmax": lambda seed: softmax(),
    "cleaning": lambda seed: cleaning(rows=40 + seed),
}


def error(problem: bilevel.Problem, x: torch.Tensor, value: torch.Tensor) -> float:
    right = truth(problem, x)
    return float((value - right).norm() / right.norm())


@pytest.mark.parametrize("accuracy", [0.3, 0.1, 0.01])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_the_hypergradient_is_as_accurate_as_asked_from_a_cold_start(family, accuracy, seed):
    problem = FAMILIES[family](seed)
    x = problem.x0 + 0.3 * normal(torch.Generator().manual_seed(seed), len(problem.x0))
    oracle, method = make(problem), AccurateAID(accuracy)
    found = method.estimate(oracle, Stand(x, problem.y0), ROUNDS, oracle.streams(0))
    assert error(problem, x, found.value) <= accuracy


@pytest.mark.parametrize("seed", range(3))
def test_rounds_go_on_until_what_is_left_is_small(seed):
    """From so far away, two rounds leave an error of a hundred times the hypergradient."""
    problem = quadratic(seed, 3.0, (6, 12))
    x = problem.x0 + 0.3 * normal(torch.Generator().manual_seed(seed), len(problem.x0))
    oracle, start = make(problem), Stand(x, problem.y0 + 1e4)
    found = AccurateAID(0.01).estimate(oracle, start, GradientDescent(2, 0.5), oracle.streams(0))
    assert found.inner.steps > 4
    assert error(problem, x, found.value) <= 0.01


@pytest.mark.parametrize("kappa", [10.0, 100.0])
@pytest.mark.parametrize("seed", range(2))
def test_at_the_inner_solution_the_linear_solve_alone_is_as_accurate_as_asked(kappa, seed):
    problem = quadratic(seed, kappa, (10, 40))
    x = problem.x0 + 0.3 * normal(torch.Generator().manual_seed(seed), len(problem.x0))
    found = bilevel.hypergradient(problem, x, inner_solution(problem, x), AccurateAID(0.01))
    assert error(problem, x, found.value) <= 0.01


@pytest.mark.parametrize("family", FAMILIES)
def test_it_stays_as_accurate_along_a_run(family):
    """Most steps rest on what an earlier one measured."""
    problem, algorithm = FAMILIES[family](0), AIDBiO(accuracy=0.05)
    oracle = make(problem)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    for _ in range(6):
        x = state.x
        state, report = algorithm.step(View.of(oracle, state.step), state)
        assert error(problem, x, report.direction) <= 0.05


def test_the_least_curvature_is_seen_though_cg_meets_it_last():
    """κ = 1e4, 120 curvatures, no preconditioner, and most is owed to the least of them."""
    problem = quadratic(0, 1e4, (10, 120))
    x = problem.x0 + 1.0
    method, y = AccurateAID(0.01), inner_solution(problem, x)
    value = bilevel.hypergradient(problem, x, y, method).value
    wrong = float((value - truth(problem, x)).norm())
    assert wrong <= 0.01 * float(truth(problem, x).norm())
    assert bilevel.certify(problem, x, y, method).error >= wrong


def test_what_a_step_measured_spares_the_next_ones_the_second_round():
    problem, algorithm = cleaning(rows=60), AIDBiO()
    oracle, rounds = CountingOracle(make(problem)), []
    state = algorithm.init(oracle, problem.x0, problem.y0)
    for _ in range(22):
        before = oracle.counts
        state, _ = algorithm.step(View.of(oracle, state.step), state)
        assert state.measured["sensitivity"] > 0
        rounds.append((oracle.counts - before).gc_f // 2)
    assert rounds[0] >= 2
    assert rounds[10] == rounds[20] == 2
    assert rounds[12:20] == [1] * 8


def test_the_sensitivity_is_the_change_of_the_hypergradient_by_that_of_the_gradient():
    problem, x = cleaning(), cleaning().x0
    oracle = make(problem)
    states = [problem.y0]
    for _ in range(2):
        states.append(ROUNDS.solve(oracle, x, states[-1], oracle.streams(0)).y)
    exact = AccurateAID(1e-9, CG(200, 1e-14), rounds=2)
    found = exact.estimate(oracle, Stand(x, problem.y0), ROUNDS, oracle.streams(0))
    gradients = [float(oracle.inner(x, y).gradient().norm()) for y in states[1:]]
    change = truth(problem, x, states[2]) - truth(problem, x, states[1])
    expected = float(change.norm()) / (gradients[0] - gradients[1])
    assert found.measured["sensitivity"] == pytest.approx(expected, rel=1e-6)


def test_a_linear_solver_and_an_inner_solver_of_ones_own_are_kept():
    own = AIDBiO(cg_steps=7, inner=NewtonCG(1e-8)).parts(0)
    assert own.hypergradient == bilevel.AID(CG(7))
    assert own.inner == NewtonCG(1e-8)
    assert AIDBiO(cg_steps=7).parts(0).hypergradient == AccurateAID(0.1, CG(7))
    assert AIDBiO(cg_tol=1e-3).parts(0).hypergradient == AccurateAID(0.1, CG(1000, 1e-3))
    given = AIDBiO(preconditioner=jacobi).parts(0)
    assert given.hypergradient.preconditioner is given.inner.preconditioner is jacobi
    fixed = AIDBiO(inner_steps=7, inner_lr=0.1).parts(0)
    assert fixed.hypergradient == AccurateAID(0.1, rounds=1)
    assert AIDBiO(inner_steps=7).parts(0).inner == GradientDescent(7, Measured())
    assert AIDBiO(solver=CG(9, 1e-3)).parts(0).hypergradient == AccurateAID(0.1, CG(9, 1e-3))


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("height", [1e-4, 1.0, 1e4])
def test_units_of_x_and_of_the_losses_do_not_matter(scale, height):
    """x in other units, f and g times a number: the same run, in those units."""
    plain = quadratic(3, 50.0)

    def run(problem: bilevel.Problem) -> bilevel.Result:
        return bilevel.minimize(problem, AIDBiO(accuracy=1e-6), steps=25)

    scaled = bilevel.Problem(
        outer=lambda x, y: height * plain.outer(x / scale, y),
        inner=lambda x, y: height * plain.inner(x / scale, y),
        x0=plain.x0.clone(),
        y0=plain.y0.clone(),
    )
    torch.testing.assert_close(run(scaled).x / scale, run(plain).x, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("algorithm", [AIDBiO(), ITDBiO(inner_steps=30)], ids=["aid", "itd"])
@pytest.mark.parametrize("kappa", [3.0, 30.0])
def test_with_no_number_given_a_run_comes_to_a_stationary_point(algorithm, kappa):
    family = known_quadratic(kappa)
    result = bilevel.minimize(family.problem(), algorithm, steps=50)
    start = float(family.gradient(torch.zeros(3).double()).norm())
    # ITD's thirty steps see κ = 30 only in part: what it ends at is biased.
    floor = 1e-3 if isinstance(algorithm, AIDBiO) else max(1e-3, math.exp(-30 / kappa))
    assert float(family.gradient(result.x).norm()) <= floor * start


def test_stocbio_with_no_number_given_comes_near_to_a_stationary_point():
    family = noisy_sum(rows=700)
    result = bilevel.minimize(family.problem(), StocBiO(), steps=150)
    start = float(family.gradient(torch.zeros(len(result.x)).double()).norm())
    assert float(family.gradient(result.x).norm()) <= 0.05 * start


@pytest.mark.parametrize("steepness", [1e-3, 1.0, 1e3])
def test_stocbio_takes_steps_that_fit_the_curvature(steepness):
    """A ridge that x makes steeper by up to e³ during the run."""
    rows = torch.randn(300, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = bilevel.Problem(
        outer=lambda x, y, batch: ((y - batch.data) ** 2).mean() + ((x - 3) ** 2).sum(),
        inner=lambda x, y, batch: steepness * (x.exp() * (y - batch.data) ** 2).mean(),
        x0=torch.zeros(4).double(),
        y0=torch.full((4,), 5.0).double(),
        outer_data=rows,
        inner_data=rows,
    )
    result = bilevel.minimize(problem, StocBiO(), steps=60)
    # With fewer rows than a batch has there is no noise: it goes on until rounding.
    assert result.status == "stalled"
    assert "the hypergradient's norm fell from" in result.message
    assert "solve ended with" not in result.message
    torch.testing.assert_close(result.x, torch.full((4,), 3.0).double())
    torch.testing.assert_close(result.y, rows.mean(0))
    parts, oracle = StocBiO().parts(60), make(problem)
    assert parts.inner.lr == parts.hypergradient.solver.lr
    x, y, streams = result.state.x, result.state.y, oracle.streams(60)
    L = 1 / Measured().at(oracle, x, y, streams)
    assert 1.5 * 0.99 <= 1 / (parts.inner.lr.at(oracle, x, y, streams) * L) <= 1.5 * 1.01
    # Where there are fewer rows than a batch has, all of them count.
    assert [step.rows for step in parts.inner.plan(oracle, x, y, streams)] == [None] * 16
    assert streams.rows("outer", parts.hypergradient.batch.outer) is None


def test_stocbio_keeps_the_numbers_that_are_given():
    sizes = {"inner": 3, "outer": 4, "hessian": 5, "cross": 6}
    parts = StocBiO(inner_lr=0.02, neumann_terms=7, batch=sizes).parts(0)
    series = parts.hypergradient.solver
    assert (parts.inner.lr, parts.inner.batch, parts.inner.steps) == (0.02, 3, 16)
    assert (series.terms, series.batch) == (7, 5)
    assert (parts.hypergradient.batch.outer, parts.hypergradient.batch.cross) == (4, 6)
    assert isinstance(series.lr, Measured)
    oracle = make(noisy_sum(rows=60).problem())
    x, y = torch.zeros(3).double(), torch.zeros(5).double()
    assert 0 < series.lr.at(oracle, x, y, oracle.streams(0)) < math.inf


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AIDBiO(inner_lr=0.1), r"inner_lr = 0\.1 is for gradient steps: say how many"),
        (lambda: AIDBiO(inner_steps="many"), r"steps must be an integer.*'many'"),
        (lambda: AIDBiO(cg_steps="many"), r"steps must be an integer.*'many'"),
        (lambda: AIDBiO(accuracy=0), r"accuracy must be a positive number, got 0"),
        (lambda: StocBiO(neumann_lr="fast"), r"lr must be a positive number, got 'fast'"),
        (lambda: StocBiO(neumann_terms=-1), r"terms must be an integer of at least 0, got -1"),
        (lambda: StocBiO(batch="big"), r"batch must be a number of rows.*got 'big'"),
        (lambda: AccurateAID(rounds=0), r"rounds must be an integer of at least 1, got 0"),
    ],
)
def test_a_wrong_word_or_number_is_refused_when_the_algorithm_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_measured_descent_is_the_formula_of_its_paper():
    step, memory, value = MeasuredDescent(), {}, -3.7
    A = torch.diag(torch.tensor([1.0, 3.0, 9.0]).double())
    x, xs, lrs = torch.ones(3).double(), [], []
    for _ in range(6):
        xs.append(x)
        x, memory = step.apply(x, A @ x, memory, Look(value=lambda: value))
        lrs.append(memory["lr"])
    assert lrs[0] == pytest.approx(0.01 * 3.7 / float((A @ xs[0]).square().sum()))
    for k in range(1, 6):
        local = (xs[k] - xs[k - 1]).norm() / (math.sqrt(2) * (A @ (xs[k] - xs[k - 1])).norm())
        growth = math.inf if k == 1 else math.sqrt(1 + lrs[k - 1] / lrs[k - 2])
        expected = float(local) if k == 1 else min(growth * lrs[k - 1], float(local))
        assert lrs[k] == pytest.approx(expected)


def test_measured_descent_bears_zero_and_constant_hypergradients():
    look = Look(value=lambda: 2.0)
    x, memory = torch.ones(3).double(), {}
    for _ in range(3):
        x, memory = MeasuredDescent().apply(x, 0 * x, memory, look)
    assert torch.equal(x, torch.ones(3).double())
    memory = {}
    for _ in range(3):
        x, memory = MeasuredDescent().apply(x, torch.ones_like(x), memory, look)
    assert torch.isfinite(x).all()


@pytest.mark.parametrize("start", [0.0, 2.0])
def test_adagrad_is_torchs_with_the_size_of_x_for_its_step(start):
    x = torch.full((3,), start).double()
    memory = AdaGrad().init(x)
    parameter = torch.nn.Parameter(x.clone())
    optimizer = torch.optim.Adagrad([parameter], lr=start or 1.0, eps=1e-300)
    for k in range(5):
        h = torch.tensor([1.0 + k, -0.5, 0.0]).double()
        x, memory = AdaGrad().apply(x, h, memory, Look(k))
        parameter.grad = h.clone()
        optimizer.step()
    torch.testing.assert_close(x, parameter.detach(), rtol=1e-12, atol=1e-12)


def test_newton_stops_at_a_drop_and_does_not_chase_rounding():
    problem = cleaning()
    oracle, x, y = make(problem), problem.x0, problem.y0
    start = float(oracle.inner(x, y).gradient().norm())
    for drop in (0.5, 0.1, 1e-3):
        found = NewtonCG(1e-30, drop=drop).solve(oracle, x, y, oracle.streams(0))
        assert found.status == "converged"
        assert 0 < found.gradient_norm <= drop * start
    solved = inner_solution(problem, x)
    assert NewtonCG(1e-6).solve(oracle, x, solved, oracle.streams(0)).steps == 0
    stalled = NewtonCG(1e-30).solve(oracle, x, solved, oracle.streams(0))
    assert stalled.status == "stalled"
    assert stalled.steps <= 3
