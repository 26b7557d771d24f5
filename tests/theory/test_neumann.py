"""Proposition 3 and Lemma 8: bias and variance of the sampled Neumann series, by Monte Carlo.

The constants are those of each row's loss, as Assumptions 1 and 2 have them.
"""

import math

import pytest
import torch
from bilevel.linear import MatrixHessian, SampledNeumann

import bilevel
from bilevel.theory.formulas import Letters, neumann_bias, neumann_error, sensitivity

from ..truth.theory_problems import normal, quadratic, spectrum_matrix

ROWS, RUNS = 60, 200


def finite_sum(seed, kappa):
    """Hessians between 1 and κ that do not commute, right-hand sides, and the letters."""
    generator = torch.Generator().manual_seed(seed)
    H = torch.stack([spectrum_matrix(generator, 4, 1.0, kappa) for _ in range(ROWS)])
    b = normal(generator, 4) + 0.5 * normal(generator, ROWS, 4)
    M = float(b.norm(dim=1).max())
    return H, b, Letters(L=kappa, mu=1.0, M=M, rho=0.0, tau=0.0, sigma=0.0)


def runs(solver, H, b, D_f, count=RUNS):
    """v_Q of independent runs, each with a fresh batch for b."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for seed in range(count):
        rows = torch.randperm(ROWS, generator=generator)[:D_f]
        found.append(solver.solve(MatrixHessian(H, seed=seed), b[rows].mean(0)).v)
    return torch.stack(found)


CASES = [
    pytest.param(2.0, 6, 1, 4, id="well conditioned, single rows"),
    pytest.param(4.0, 3, 2, 10, id="few terms: the bias leads"),
    pytest.param(4.0, 12, 4, ROWS, id="many terms: the Hessians' noise leads"),
    pytest.param(8.0, 10, 8, 1, id="one row of f: its noise leads"),
]


@pytest.mark.parametrize(("kappa", "Q", "B", "D_f"), CASES)
def test_monte_carlo_bias_and_error_lie_below_proposition_3(kappa, Q, B, D_f):
    H, b, c = finite_sum(0, kappa)
    eta = 1 / max(kappa, 2.0)
    B = max(B, math.ceil(1 / (Q * (1 - eta) ** (Q - 1))))  # which the proposition asks for
    solver = SampledNeumann(Q, eta, batch=B, strong_convexity=1.0)
    off = runs(solver, H, b, D_f) - torch.linalg.solve(H.mean(0), b.mean(0))
    # The mean of 200 runs is known to five of its own standard errors.
    spread = float(off.std(0).norm()) / math.sqrt(RUNS)
    assert float(off.mean(0).norm()) <= neumann_bias(c, eta, Q) + 5 * spread
    squares = off.square().sum(1)
    margin = 5 * float(squares.std()) / math.sqrt(RUNS)
    assert float(squares.mean()) + margin <= neumann_error(c, eta, Q, B, D_f)


def test_the_bias_is_reached_where_the_hessian_is_its_smallest():
    """H = μI on all rows: E v_Q − H⁻¹b is exactly the tail of the series."""
    c = Letters(L=4.0, mu=1.0, M=3.0, rho=0.0, tau=0.0, sigma=0.0)
    b = torch.tensor([3.0, 0.0]).double()
    for Q in (1, 5, 20):
        v = SampledNeumann(Q, 0.25).solve(MatrixHessian(torch.eye(2).double()), b).v
        assert float((v - b).norm()) == pytest.approx(neumann_bias(c, 0.25, Q), rel=1e-9)


@pytest.mark.parametrize("eta_mu", [0.001, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("Q", [1, 2, 5, 40])
def test_the_sum_of_the_proof_gives_the_printed_variance_once_the_exact_first_term_is_left_out(
    eta_mu, Q
):
    """4η²M²Q Σ_q E M_q with E M_q ≤ L²η² x^(2q−2) Σ_{j≤q} 1/|B_j| and M_0 = 0."""
    x, L, M, B, mu = 1 - eta_mu, 3.0, 2.0, 7.0, 0.5
    eta = eta_mu / mu

    def M_q(q):
        return (
            (L * eta) ** 2 * x ** (2 * q - 2) * sum(x ** (1 - j) / (B * Q) for j in range(1, q + 1))
        )

    c = Letters(L=L, mu=mu, M=M, rho=0.0, tau=0.0, sigma=0.0)
    printed = neumann_error(c, eta, Q=10**9, B=B, D_f=math.inf)
    assert 4 * eta**2 * M**2 * Q * sum(M_q(q) for q in range(1, Q + 1)) <= printed * (1 + 1e-12)
    # The proof's own last line sums a bound of M_0, too, and then needs 1/(1 − ημ) more.
    written = sum(eta * L**2 / (x * mu) / (B * Q) * x**q for q in range(10**4))
    assert 4 * eta**2 * M**2 * Q * written == pytest.approx(printed / x, rel=1e-3)


def test_lemma_8_as_printed_fails_where_the_neumann_bias_and_y_pull_the_same_way():
    """Its step (i) takes E∇̂Φ for the hypergradient at y, which the series misses by its tail.

    One number each, on all rows, so that nothing is random: g = ½μy² − Jxy, f = My + ½Ly², with
    J such that ∇g is L-Lipschitz in (x, y) together; x = y* = 0 and y = −0.01.
    """
    L, mu, M, Q, away = 1.0, 1 / 200, 1.0, 1471, 0.01
    J = math.sqrt(L**2 - mu * L)
    joint = torch.tensor([[0.0, -J], [-J, mu]]).double()
    assert float(torch.linalg.matrix_norm(joint, 2)) == pytest.approx(L)
    problem = bilevel.Problem(
        outer=lambda x, y: (M * y + 0.5 * L * y**2).sum(),
        inner=lambda x, y: 0.5 * mu * y @ y - J * x @ y,
        x0=torch.zeros(1).double(),
        y0=torch.zeros(1).double(),
    )
    x, y = torch.zeros(1).double(), torch.full((1,), -away).double()
    value = bilevel.hypergradient(problem, x, y, bilevel.AID(SampledNeumann(Q, lr=1 / L))).value
    squared = float((value - J / mu * M).square())
    c = Letters(L=L, mu=mu, M=M, rho=0.0, tau=0.0, sigma=0.0)
    tail, felt = (L * M / mu) ** 2, (sensitivity(c) * away) ** 2
    assert squared > 1.04 * (16 * tail * (1 - mu / L) ** (2 * Q) + felt)
    assert squared <= 17 * tail * (1 - mu / L) ** (2 * Q + 2) + 2 * felt


@pytest.mark.parametrize("away", [0.0, 0.3])
def test_the_error_of_a_stochastic_hypergradient_lies_below_lemma_8_with_its_bias(away):
    """Δ + 2(L + L²/μ)²‖y − y*‖², with 17 for 16 in Δ."""
    problem, Q, sizes = quadratic(0, kappa=2.0, rows=ROWS, r=0.0), 6, {"outer": 5, "cross": 3}
    form, x = problem.model, torch.ones(3).double()
    y, eta, B = form.solution(x) + away, 0.5, 12
    method = bilevel.AID(SampledNeumann(Q, eta, B, 1.0), bilevel.BatchSizes(**sizes))
    found = [bilevel.hypergradient(problem, x, y, method, seed=s).value for s in range(60)]
    squares = (torch.stack(found) - form.hypergradient(x)).square().sum(1)
    M = max(float(((point - form.d) @ form.F).norm(dim=1).max()) for point in (y, form.solution(x)))
    c = Letters(L=2.0, mu=1.0, M=M, rho=0.0, tau=0.0, sigma=0.0)
    scale, tail = (c.L * M / c.mu) ** 2, (1 - eta) ** (2 * Q + 2)
    delta = 4 * scale / 3 + (8 * c.kappa**2 + 2) * M**2 / 5
    delta += 16 * (eta * c.L) ** 2 * scale / B + 17 * scale * tail
    bound = delta + 2 * (sensitivity(c) * float((y - form.solution(x)).norm())) ** 2
    assert float(squares.mean()) + 5 * float(squares.std()) / math.sqrt(60) <= bound
