"""stocBiO, BSA and TTSA, step by step, written out by hand from their papers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from bilevel.linear import RandomTruncation, SampledNeumann
from torch import Tensor

import bilevel
from bilevel.algorithms import BSA, TTSA, StocBiO
from bilevel.hypergradients import AID, Stand
from bilevel.oracles import View, make
from bilevel.problem.sampling import BatchSizes, Streams

from ..truth.dense_truth import relative
from ..truth.quadratics import noisy_sum
from ..truth.small_problems import network

SEED = 11


def inner_gradient(problem: bilevel.Problem, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    y = y.detach().requires_grad_()
    return torch.autograd.grad(problem.inner_loss(x, y, rows), y)[0]


def inner_products(
    problem: bilevel.Problem, x: Tensor, y: Tensor, rows: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """(∇x∇y G(x, y; rows) v, ∇²y G(x, y; rows) v)."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = problem.inner_loss(x, y, rows)
    (gradient,) = torch.autograd.grad(value, y, create_graph=True)
    return torch.autograd.grad(gradient, (x, y), v)


def outer_gradients(
    problem: bilevel.Problem, x: Tensor, y: Tensor, rows: Tensor
) -> tuple[Tensor, ...]:
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    return torch.autograd.grad(problem.outer_loss(x, y, rows), (x, y), materialize_grads=True)


@pytest.mark.parametrize("strong_convexity", [None, 0.8])
@pytest.mark.parametrize("stated", [lambda: noisy_sum(rows=50).problem(), network])
def test_stocbio_is_algorithms_2_and_3_of_the_paper_line_by_line(stated, strong_convexity):
    problem, sizes = stated(), {"inner": 3, "outer": 4, "hessian": 2, "cross": 5}
    alpha, beta, eta, D, Q, mu = 0.1, 0.2, 0.3, 3, 4, strong_convexity
    algorithm = StocBiO(
        inner_steps=D,
        inner_lr=alpha,
        outer_lr=beta,
        neumann_terms=Q,
        neumann_lr=eta,
        strong_convexity=mu,
        batch=sizes,
    )
    oracle = make(problem, SEED)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    x, y = problem.x0, problem.y0
    n, m = len(problem.inner_data), len(problem.outer_data)
    for k in range(3):  # Algorithm 2, line 2
        streams = Streams(SEED, k, n, m)
        # Lines 4 to 7: y from the last step's, a fresh batch S each time.
        for rows in streams.batches("inner", sizes["inner"], D):
            y = y.sub(inner_gradient(problem, x, y, rows), alpha=alpha)
        outer_rows = streams.rows("outer", sizes["outer"])  # line 8: D_F
        outer_x, v_0 = outer_gradients(problem, x, y, outer_rows)  # line 9
        r = {Q: v_0}  # Algorithm 3, line 5
        size = sizes["hessian"]
        if mu is None:
            batches = streams.batches("hessian", size, Q)
        else:  # Proposition 3: |B_{Q+1−j}| = B Q (1 − ημ)^{j−1}
            decaying = (size * Q * (1 - eta * mu) ** (j - 1) for j in range(1, Q + 1))
            batches = [streams.rows("hessian", min(n, max(1, math.ceil(B)))) for B in decaying]
        for i, B_i in zip(range(Q, 0, -1), batches, strict=True):  # lines 6 to 8
            r[i - 1] = r[i].sub(inner_products(problem, x, y, B_i, r[i])[1], alpha=eta)
        v_Q = sum((r[i] for i in range(Q - 1, -1, -1)), start=r[Q]) * eta  # line 9
        cross_rows = streams.rows("cross", sizes["cross"])  # Algorithm 2, line 11: D_G
        cross, _ = inner_products(problem, x, y, cross_rows, v_Q)
        h = outer_x - cross  # line 12
        x = x.sub(h, alpha=beta)  # line 13
        state, report = algorithm.step(View.of(oracle, k), state)
        assert torch.equal(state.y, y)
        assert torch.equal(state.points["v"], v_Q)
        assert torch.equal(report.direction, h)
        assert torch.equal(state.x, x)


def test_the_batches_of_one_stocbio_step_are_all_different_draws():
    """Independence of the roles and of the B_i is what Proposition 3 rests on."""
    streams = Streams(SEED, 0, 1000, 1000)
    drawn = [
        tuple(streams.rows(role, 10).tolist())
        for role in ("inner", "inner", "outer", "hessian", "hessian", "hessian", "cross")
    ]
    assert len(set(drawn)) == len(drawn)


def test_stocbio_on_all_rows_is_aid_with_a_neumann_series():
    q = noisy_sum(rows=50)
    problem = q.problem()
    algorithm = StocBiO(inner_steps=5, inner_lr=0.3, neumann_terms=7, neumann_lr=0.3, batch=None)
    oracle = make(problem, SEED)
    start = algorithm.init(oracle, problem.x0, problem.y0)
    after, report = algorithm.step(View.of(oracle), start)
    exact = bilevel.hypergradient(
        problem,
        problem.x0,
        problem.y0,
        method=bilevel.AID(bilevel.linear.Neumann(7, 0.3)),
        inner=bilevel.inner.GradientDescent(5, 0.3),
    )
    assert relative(report.direction, exact.value) < 1e-14
    assert relative(after.points["v"], exact.v) < 1e-14


@pytest.mark.parametrize("k", [0, 1, 9])
@pytest.mark.parametrize("method", [BSA, TTSA])
def test_bsa_and_ttsa_take_the_steps_of_their_papers_on_single_samples(method, k):
    q, Q, eta = noisy_sum(rows=50), 6, 0.2
    problem = q.problem()
    algorithm = method(neumann_terms=Q, neumann_lr=eta)
    oracle, streams = make(problem, SEED), Streams(SEED, k, 50, 50)
    x, y = torch.ones(3).double(), torch.ones(5).double()
    start = replace(algorithm.init(oracle, x, y), step=k)
    if method is BSA:  # t_k = ⌈√(k+1)⌉ steps of size 0.5/(t+1); then 0.1/√(k+1)
        inner_lrs = [0.5 / (t + 1) for t in range(math.isqrt(k) + 1)]
        outer_lr = 0.1 / (k + 1) ** 0.5
    else:  # one step on the faster scale; then one on the slower
        inner_lrs = [0.1 / (k + 1) ** (2 / 5)]
        outer_lr = 0.1 / (k + 1) ** (3 / 5)
    for lr, (i,) in zip(inner_lrs, streams.batches("inner", 1, len(inner_lrs)), strict=True):
        y = y - lr * (q.A[i] @ y - q.B[i] @ x - q.c[i])
    (i,) = streams.rows("outer", 1)
    v = Q * eta * (y - q.t[i])
    for (i,) in streams.batches("hessian", 1, streams.below(Q)):
        v = v - eta * q.A[i] @ v
    (i,) = streams.rows("cross", 1)
    h = q.rho * (x - q.s) + q.B[i].T @ v
    after, report = algorithm.step(View.of(oracle, k), start)
    assert relative(after.y, y) < 1e-13
    assert relative(after.points["v"], v) < 1e-13
    assert relative(report.direction, h) < 1e-13
    assert relative(after.x, x - outer_lr * h) < 1e-13


def test_the_default_step_sizes_of_ttsa_decay_with_exponents_two_and_three_fifths():
    algorithm = TTSA()
    steps = [0, 1, 31, 242]  # 32^(1/5) = 2 and 243^(1/5) = 3
    inner = [algorithm.parts(k).inner.lr for k in steps]
    outer = [algorithm.parts(k).outer.lr(k) for k in steps]
    assert inner == pytest.approx([0.1, 0.1 * 2**-0.4, 0.1 / 4, 0.1 / 9], rel=1e-12)
    assert outer == pytest.approx([0.1, 0.1 * 2**-0.6, 0.1 / 8, 0.1 / 27], rel=1e-12)


def test_the_default_step_sizes_of_bsa_decay_within_its_loop_and_over_its_steps():
    algorithm = BSA()
    plan = algorithm.parts(15).inner.plan(None, None, None, Streams(SEED, 15, 50, 50))
    assert [step.lr for step in plan] == pytest.approx([0.5, 0.25, 0.5 / 3, 0.125], rel=1e-12)
    assert [algorithm.parts(k).outer.lr(k) for k in (0, 3, 99)] == pytest.approx([0.1, 0.05, 0.01])


@pytest.mark.parametrize("solver", [RandomTruncation(6, 0.2, 2), SampledNeumann(6, 0.2, 2)])
def test_after_any_inner_solver_a_series_has_the_first_batches_of_its_stream(solver):
    problem, method = noisy_sum(rows=50).problem(), AID(solver, BatchSizes(outer=3, cross=3))
    oracle, inner = make(problem, SEED), bilevel.inner.LBFGS(tol=1e-8)
    x, y = problem.x0, problem.y0
    solved = inner.solve(oracle, x, y, oracle.streams(0))
    expected = method.at(oracle, x, solved, None, oracle.streams(0))
    found = method.estimate(oracle, Stand(x, y), inner, oracle.streams(0))
    assert torch.equal(found.value, expected.value)
    assert torch.equal(found.linear.v, expected.linear.v)
