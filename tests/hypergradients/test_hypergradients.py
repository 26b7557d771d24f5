"""AID and ITD against closed forms, dense Hessians and plain unrolled autograd."""

from __future__ import annotations

import pytest
import torch
from bilevel.inner import SGD, GradientDescent
from bilevel.linear import LinearSolver

import bilevel
from bilevel import AID, ITD
from bilevel.hypergradients import Stand
from bilevel.oracles import make

from ..truth import dense_truth
from ..truth.dense_truth import relative
from ..truth.examples import example, offered
from ..truth.quadratics import flat, noisy_sum, quadratic, structured
from ..truth.small_problems import network, softmax
from ..truth.watched import Watched

# A random truncation is right on average only; a test of its own follows below.
# Those whose answer is the solution, and not its expectation or an approximation of fixed cost.
SOLVERS = sorted(
    name
    for name, kind in offered(bilevel.linear, LinearSolver).items()
    if kind.converges and name != "RandomTruncation"
)
CASES = [
    pytest.param(1.0, (1, 1), "tensor", id="scalars"),
    pytest.param(10.0, (3, 5), "dict", id="dict"),
    pytest.param(10.0, (6, 4), "tuple", id="tuple"),
    pytest.param(100.0, (2, 20), "tensor", id="ill-conditioned"),
]
PROBLEMS = {
    "penalties": lambda: softmax(),
    "sample weights": lambda: softmax(
        weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.05)
    ),
    "network": network,
}


def exact(name: str, least: float, largest: float) -> LinearSolver:
    """The solver with settings that leave only rounding, for eigenvalues in these bounds."""
    rate = 2 / (least + largest)
    enough = int(20 * largest / least) + 20  # ((κ − 1)/(κ + 1))^(20κ) is below 1e-17
    chosen = {
        "steps": enough,
        "terms": enough,
        "lr": rate,
        "tol": 1e-15,
        "drop": 1e-15,
        "batch": None,
    }
    return example(getattr(bilevel.linear, name), **chosen)


def some_point(problem: bilevel.Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat x and y near the start but not at it, where no derivative is zero by symmetry."""
    generator = torch.Generator().manual_seed(3)
    x = problem.x0 + 0.3 * torch.randn(problem.x0.shape, generator=generator).double()
    y = problem.y0 + 0.1 * torch.randn(problem.y0.shape, generator=generator).double()
    return x, y


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("kappa", "sizes", "kind"), CASES)
def test_aid_equals_the_closed_form_on_quadratics(solver, kappa, sizes, kind):
    q = quadratic(kappa, sizes)
    x = torch.linspace(-1, 2, sizes[0]).double()
    h = bilevel.hypergradient(
        q.problem(kind),
        structured(x, kind),
        structured(q.inner_solution(x), kind),
        method=AID(exact(solver, 1.0, kappa)),
    )
    assert relative(flat(h.value), q.gradient(x)) < 1e-12 * kappa
    assert relative(flat(h.v), q.linear_solution(x)) < 1e-12 * kappa


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_aid_equals_the_dense_truth_at_any_inner_point(name, solver):
    problem = PROBLEMS[name]()
    x, y = some_point(problem)
    h = bilevel.hypergradient(
        problem,
        problem.x_structure.unflatten(x),
        problem.y_structure.unflatten(y),
        method=AID(exact(solver, *dense_truth.curvature_bounds(problem, x, y))),
    )
    value = problem.x_structure.flatten(h.value)
    assert relative(value, dense_truth.hypergradient(problem, x, y)) < 1e-12


def test_aid_with_a_random_truncation_is_the_product_of_as_many_factors_as_it_drew():
    q, Q, eta = quadratic(10.0), 8, 0.1
    problem, x = q.problem(), torch.ones(3).double()
    y = q.inner_solution(x)
    method = AID(bilevel.linear.RandomTruncation(terms=Q, lr=eta))
    factor = torch.eye(5).double() - eta * q.A
    drawn = set()
    for seed in range(12):
        h = bilevel.hypergradient(problem, x, y, method=method, seed=seed)
        p = h.counts.hv
        v = Q * eta * torch.linalg.matrix_power(factor, p) @ (y - q.t)
        assert relative(h.v, v) < 1e-13
        assert relative(h.value, q.rho * (x - q.s) + q.B.T @ v) < 1e-13
        drawn.add(p)
    assert len(drawn) > 3
    assert drawn <= set(range(Q))


@pytest.mark.parametrize("D", [1, 2, 13])
@pytest.mark.parametrize("name", PROBLEMS)
def test_itd_equals_unrolled_autograd(name, D):
    problem = PROBLEMS[name]()
    x, y = some_point(problem)
    inner = GradientDescent(D, 0.2)
    estimate = ITD().estimate(oracle := make(problem), Stand(x, y), inner, oracle.streams(0))
    assert relative(estimate.value, dense_truth.unrolled(problem, x, y, [0.2] * D)) < 1e-13


@pytest.mark.parametrize("truncate", [1, 2, 6, 7, 50])
@pytest.mark.parametrize("name", PROBLEMS)
def test_truncated_itd_equals_unrolled_autograd_detached_at_that_step(name, truncate):
    problem, D = PROBLEMS[name](), 7
    x, y = some_point(problem)
    oracle, inner = make(problem), GradientDescent(D, 0.2)
    estimate = ITD(truncate).estimate(oracle, Stand(x, y), inner, oracle.streams(0))
    truth = dense_truth.unrolled(problem, x, y, [0.2] * D, truncate=truncate)
    assert relative(estimate.value, truth) < 1e-13


@pytest.mark.parametrize("name", PROBLEMS)
def test_itd_through_no_step_is_the_outer_gradient_at_the_last_iterate(name):
    problem = PROBLEMS[name]()
    x, y = some_point(problem)
    oracle, inner = make(problem), GradientDescent(7, 0.2)
    estimate = ITD(truncate=0).estimate(oracle, Stand(x, y), inner, oracle.streams(0))
    assert torch.equal(estimate.inner.y, inner.solve(oracle, x, y, oracle.streams(0)).y)
    assert torch.equal(estimate.value, oracle.outer(x, estimate.inner.y).gradient()[0])
    assert not estimate.linear.v.any()


@pytest.mark.parametrize("checkpoint", [1, 2, 3, 7, 10, 11, 50])
@pytest.mark.parametrize("truncate", [None, 4])
def test_checkpointed_itd_gives_the_same_bits(checkpoint, truncate):
    problem = softmax()
    x, y = some_point(problem)
    oracle, inner = make(problem, seed=5), SGD(10, 0.2, batch=8)
    plain, recomputed = (
        ITD(truncate, every).estimate(oracle, Stand(x, y), inner, oracle.streams(0))
        for every in (None, checkpoint)
    )
    assert torch.equal(plain.value, recomputed.value)
    assert torch.equal(plain.inner.y, recomputed.inner.y)
    assert torch.equal(plain.linear.v, recomputed.linear.v)


@pytest.mark.parametrize("name", PROBLEMS)
def test_itd_differentiates_stochastic_steps_on_the_batches_that_they_drew(name):
    problem = PROBLEMS[name]()
    x, y = some_point(problem)
    oracle, lr = make(problem, seed=2), bilevel.schedules.decaying(0.3, 0.5)
    estimate = ITD().estimate(oracle, Stand(x, y), SGD(6, lr, batch=5), oracle.streams(4))
    streams = oracle.streams(4)
    rows = streams.batches("inner", 5, 6)
    truth = dense_truth.unrolled(problem, x, y, [lr(t) for t in range(6)], rows)
    assert relative(estimate.value, truth) < 1e-13
    full = dense_truth.unrolled(problem, x, y, [lr(t) for t in range(6)])
    assert relative(full, truth) > 1e-3  # the batches matter


@pytest.mark.parametrize(("kappa", "sizes", "kind"), CASES[:3])
def test_itd_reaches_the_closed_form_after_many_steps(kappa, sizes, kind):
    q = quadratic(kappa, sizes)
    x = torch.linspace(-1, 2, sizes[0]).double()
    h = bilevel.hypergradient(
        q.problem(kind),
        structured(x, kind),
        structured(torch.zeros(sizes[1]).double(), kind),
        method=ITD(),
        inner=GradientDescent(int(15 * kappa), 2 / (kappa + 1)),
    )
    assert relative(flat(h.value), q.gradient(x)) < 1e-11


def test_itd_leaves_out_the_part_of_the_series_that_proposition_2_says():
    """On a quadratic, D steps give v = α Σ_{i<D} (I − αA)^i (y^D − t), and y^D in closed form."""
    q, D, alpha = quadratic(10.0), 9, 0.1
    x = torch.ones(3).double()
    factor = torch.eye(5).double() - alpha * q.A
    target = q.inner_solution(x)
    y_D = target + torch.linalg.matrix_power(factor, D) @ (torch.zeros(5).double() - target)
    series = sum(torch.linalg.matrix_power(factor, i) for i in range(D))
    v = alpha * series @ (y_D - q.t)
    h = bilevel.hypergradient(
        q.problem(), x, torch.zeros(5).double(), method=ITD(), inner=GradientDescent(D, alpha)
    )
    assert relative(h.y, y_D) < 1e-13
    assert relative(h.v, v) < 1e-13
    assert relative(h.value, q.rho * (x - q.s) + q.B.T @ v) < 1e-13


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (ITD(), {"gc_g": 10, "jv": 10, "hv": 9}),
        (ITD(truncate=4), {"gc_g": 10, "jv": 4, "hv": 3}),
        (ITD(truncate=0), {"gc_g": 10, "jv": 0, "hv": 0}),
        (ITD(truncate=50), {"gc_g": 10, "jv": 10, "hv": 9}),
        # Stretches of 4, 4 and 2 steps: of the first two all but the last step is taken again.
        (ITD(checkpoint=4), {"gc_g": 10 + 3 + 3, "jv": 10, "hv": 9}),
    ],
    ids=str,
)
def test_itd_costs_what_it_states(method, expected):
    q = noisy_sum(rows=12)
    problem = q.problem()
    inner = SGD(10, 0.1, batch=3)
    counts = bilevel.hypergradient(
        problem, problem.x0, problem.y0, method=method, inner=inner
    ).counts
    assert counts.gc_f == 2
    assert counts.gc_f_samples == 2 * 12
    assert {name: counts[name] for name in expected} == expected
    assert {name: counts[f"{name}_samples"] for name in expected} == {
        name: 3 * calls for name, calls in expected.items()
    }


@pytest.mark.parametrize(
    "settings", [{}, {"truncate": 5}, {"checkpoint": 3}, {"truncate": 5, "checkpoint": 2}], ids=str
)
def test_reverse_steps_along_the_unrolled_gradient_from_the_start(settings):
    problem, D = softmax(), 8
    reverse = bilevel.algorithms.Reverse(inner_steps=D, inner_lr=0.3, outer_lr=0.5, **settings)
    seen, watched = [], Watched(reverse)
    bilevel.minimize(problem, watched, steps=3, callbacks=[lambda p: seen.append(p.state)])
    x = problem.x0
    for state, direction in zip(
        seen, watched.directions, strict=True
    ):  # a warm start would move y0 from the second step on
        truth = dense_truth.unrolled(
            problem, x, problem.y0, [0.3] * D, truncate=settings.get("truncate")
        )
        assert relative(direction, truth) < 1e-13
        x = state.x
