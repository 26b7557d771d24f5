"""Plans: the numbers, the inequalities of the proofs that they must satisfy, and runs."""

import math

import pytest
import torch

import bilevel
from bilevel.algorithms import AIDBiO, ITDBiO, StocBiO
from bilevel.oracles import View, make
from bilevel.theory import Constant, Kind, estimate, plan

from ..truth.raised_errors import assert_raises, claims
from ..truth.theory_problems import bent, known, truth

START = {"gap": 2.0, "y_distance": 3.0, "v_distance": 0.5}
CONSTANTS = {
    "all of them": bent(0).constants(x_norm=2.0),
    "a quadratic": known(mu=0.5, L_g=2.0, cross=1.0, L_fy=0.3, M=2.0, sigma=0.1),
    "ill conditioned": known(mu=1e-3, L_g=2.0, M=0.2, rho=1.0, tau=3.0, sigma=5.0),
    "small numbers": known(mu=1e-4, L_g=1e-3, cross=1e-3, M=1e-2, rho=1e-5, tau=1e-4),
    "x brings most": known(mu=1.0, L_g=2.0, L_xx=30.0, M=1.0, tau_x=9.0, tau=0.1, rho=0.2),
    "κ = 1": known(mu=2.0, L_g=2.0, cross=1.0, L_fy=1.0, M=1.0, tau=1.0, sigma=1.0),
    "κ just above 1": known(mu=2.0, L_g=2.001, cross=1.0, M=1.0, sigma=1.0),
}
each_constants = pytest.mark.parametrize("c", CONSTANTS.values(), ids=CONSTANTS)
each_epsilon = pytest.mark.parametrize("epsilon", [100.0, 0.1, 1e-4])


class Paper:
    """The paper's letters and its derived ones, written out once more."""

    def __init__(self, c):
        self.L = max(c[n].value for n in ("L_g", "cross", "L_fx", "L_fy", "L_xx"))
        self.mu, self.M, self.sigma = c.mu.value, c.M.value, c.sigma.value
        self.rho = max(c.rho.value, c.tau.value)
        self.tau = max(c.tau.value, c.tau_x.value)
        L, mu, M, rho, tau = self.L, self.mu, self.M, self.rho, self.tau
        self.kappa = L / mu
        self.L_phi = L + (2 * L**2 + tau * M) / mu + (rho * L * M + L**3 + tau * M * L) / mu**2
        self.L_phi += rho * L**2 * M / mu**3
        self.drift = (L / mu + rho * M / mu**2) * (1 + L / mu)
        self.felt = L + L**2 / mu + M * tau / mu + L * M * rho / mu**2
        root = math.sqrt(self.kappa)
        self.curved = (1 + root) ** 2 * (self.kappa + rho * M / mu**2) ** 2
        self.gamma = 3 * L**2 + 3 * (tau * M / mu) ** 2 + 6 * L**2 * self.curved
        self.cg = ((root - 1) / (root + 1)) ** 2


def values(made):
    return {row.letter: row.value for row in made.rows}


@each_constants
@each_epsilon
def test_the_plan_of_theorem_1_satisfies_the_inequalities_of_its_proof(c, epsilon):
    made, p = plan(c, "aid-bio", epsilon, **START), Paper(c)
    alpha, beta, D, N, K = (values(made)[letter] for letter in "αβDNK")
    assert alpha == pytest.approx(1 / p.L)
    assert beta == pytest.approx(1 / (8 * p.L_phi))
    q, linear = (1 - alpha * p.mu) ** D, 24 * p.L**2 * p.kappa
    cg = p.cg**N
    # The recursion of the tracking lemma, term by term.
    moved = 4 * beta**2 * (p.kappa**2 + p.drift**2)
    assert q * (2 + 4 * p.curved + moved * p.gamma) <= 0.5 * (1 + 1e-9)
    assert cg * (16 * p.kappa + moved * linear) <= 0.5 * (1 + 1e-9)
    # Theorem 1: what D and N leave of Γ, and K.
    delta, omega = p.gamma * q + linear * cg, values(made)["Ω"]
    assert omega == pytest.approx(moved)
    assert values(made)["δ"] == pytest.approx(min(1.0, 1 / (4 * moved * (1 + 2 * beta * p.L_phi))))
    assert delta <= 1 + 1e-9
    assert (omega + 2 * omega * beta * p.L_phi) * delta <= 0.25 * (1 + 1e-9)
    bound = 64 * p.L_phi * START["gap"] + 10 * (3.0**2 + 0.5**2)
    assert bound / K <= epsilon * (1 + 1e-9)
    assert abs(K - max(1, bound / epsilon)) <= 1 + 1e-9 * K
    assert made.settings == {
        "inner_steps": D,
        "inner_lr": alpha,
        "cg_steps": N,
        "outer_lr": beta,
    }


@each_constants
def test_one_step_less_inside_would_break_the_proof_of_theorem_1(c):
    made, p = plan(c, "aid-bio", 0.1, **START), Paper(c)
    D, N, omega, linear = values(made)["D"], values(made)["N"], values(made)["Ω"], 24 * p.L**2
    linear *= p.kappa
    delta = min(1.0, 1 / (4 * omega * (1 + 2 / 8)))

    def enough(D, N):
        q, cg = (1 - p.mu / p.L) ** D, p.cg**N
        of_y = max(2 + 4 * p.curved + omega * p.gamma, p.gamma / delta) * q
        return of_y <= 0.5 + 1e-9, max(
            16 * p.kappa + omega * linear, linear / delta
        ) * cg <= 0.5 + 1e-9

    assert enough(D, N) == (True, True)
    assert D == 1 or not enough(D - 1, N)[0]
    assert N == 1 or not enough(D, N - 1)[1]


@each_constants
@each_epsilon
def test_the_plan_of_theorem_2_satisfies_the_inequalities_of_its_proof(c, epsilon):
    made, p = plan(c, "itd-bio", epsilon, **START), Paper(c)
    alpha, beta, D, K = (values(made)[letter] for letter in "αβDK")
    assert (alpha, beta) == (pytest.approx(1 / p.L), pytest.approx(1 / (4 * p.L_phi)))
    q, distance = 1 - alpha * p.mu, 3.0**2
    terms = (
        (p.L * p.M / p.mu) ** 2 * q ** (2 * D),
        distance * (p.L * (p.L + p.mu) / p.mu) ** 2 * q**D,
        4 * distance * p.M**2 * (p.tau * p.mu + p.L * p.rho) ** 2 / p.mu**4 * q ** (D - 1),
    )
    # (1/2 − βL_Φ) = 1/4 on the left and 3(1/2 + βL_Φ) = 9/4 on the right of the proof's sum.
    assert 4 * 9 / 4 * sum(terms) <= 2 * epsilon / 3 * (1 + 1e-9)
    assert 16 * p.L_phi * START["gap"] / K <= epsilon / 3
    assert made.settings == {"inner_steps": D, "inner_lr": alpha, "outer_lr": beta}
    assert made.steps == K


@each_constants
@each_epsilon
def test_the_plan_of_theorem_3_satisfies_the_inequalities_of_its_proof(c, epsilon):
    made, p = plan(c, "stocbio", epsilon, **START), Paper(c)
    found = values(made)
    alpha, beta, eta, D, Q, S, B, K = (found[letter] for letter in "αβηDQSBK")
    assert alpha == pytest.approx(2 / (p.L + p.mu))
    assert beta == pytest.approx(1 / (4 * p.L_phi))
    assert eta <= 1 / p.L * (1 + 1e-12)
    rate = ((p.L - p.mu) / (p.L + p.mu)) ** (2 * D)
    # Lemmas 8 and 9 with the Neumann bias: the error feels 2·felt² of ‖y − y*‖².
    lam = rate * (2 + 4 * (beta * p.kappa) ** 2 * 2 * p.felt**2)
    omega, nu = 4 * (beta * p.kappa) ** 2 * rate, 1.5 * p.felt**2
    x, scale = 1 - eta * p.mu, (p.L * p.M / p.mu) ** 2
    delta = 4 * scale / found["D_g"] + (8 * p.kappa**2 + 2) * p.M**2 / found["D_f"]
    delta += 16 * (eta * p.L) ** 2 * scale / B + 17 * scale * x ** (2 * Q + 2)
    noise = p.sigma**2 / (p.L * p.mu * S)
    left = 0.25 - nu * omega / (1 - lam)
    right = START["gap"] / (beta * K) + nu * (rate * 3.0**2 + noise) / (K * (1 - lam))
    right += delta / 4 + scale * x ** (2 * Q) + nu * (omega * delta + noise) / (1 - lam)
    assert lam <= 1 / 6 * (1 + 1e-9)
    assert left >= 1 / 8
    assert right / left <= epsilon
    # Each of the six terms of the last bound has a sixth of ε.
    sixth = epsilon / 6
    for value, term in (
        (K, 8 * (START["gap"] + 2.5 * 3.0**2) / beta),
        (S, 16 * 2 * nu * p.sigma**2 / (p.L * p.mu)),
        (found["D_g"], 11 / 3 * 4 * scale),
        (found["D_f"], 11 / 3 * (8 * p.kappa**2 + 2) * p.M**2),
    ):
        assert abs(value - max(1, term / sixth)) <= 1 + 1e-9 * value
    assert 11 / 3 * 16 * (eta * p.L) ** 2 * scale / B <= sixth * (1 + 1e-9)
    assert (11 / 3 * 17 + 8) * scale * x ** (2 * Q) <= sixth * (1 + 1e-9)
    assert Q == 1 or (11 / 3 * 17 + 8) * scale * x ** (2 * Q - 2) > sixth
    # Proposition 3: no batch is empty, and every count is one at least.
    assert B * Q * x ** (Q - 1) >= 1 - 1e-9
    assert min(D, Q, S, B, K, found["D_f"], found["D_g"]) >= 1
    algorithm = StocBiO(**made.settings)
    sizes = algorithm.parts(0).hypergradient.solver.batch_sizes(10**18, eta)
    assert sizes[0] >= sizes[-1] >= 1
    assert algorithm.batch == {
        "inner": S,
        "outer": found["D_f"],
        "hessian": B,
        "cross": found["D_g"],
    }


@pytest.mark.parametrize("name", ["aid-bio", "itd-bio", "stocbio"])
def test_a_plan_shows_each_letter_with_its_value_and_source(name):
    made = plan(CONSTANTS["all of them"], name, 0.1)
    text = str(made)
    assert text.startswith(f"{name}:\n")
    for row, line in zip(made.rows, text.splitlines()[1:], strict=True):
        assert line.split()[0] == row.letter
        assert f"{row.value:.6g}" in line
        assert row.source
        assert row.source in line
    common = {"L", "μ", "κ", "M", "ρ", "τ", "σ", "L_Φ", "α", "β", "D", "K"}
    own = {"aid-bio": {"Γ", "Ω", "δ", "N"}, "itd-bio": set()}
    assert set(values(made)) == common | own.get(name, {"η", "Q", "S", "D_g", "D_f", "B"})
    assert made.steps == values(made)["K"]


def test_a_smaller_epsilon_needs_more_of_everything_but_not_more_inside_aid():
    for name in ("aid-bio", "itd-bio", "stocbio"):
        coarse, fine = (values(plan(CONSTANTS["a quadratic"], name, e)) for e in (1e-1, 1e-3))
        assert fine["K"] > 90 * coarse["K"]
        grows = fine["D"] > coarse["D"]
        assert grows == (name == "itd-bio"), "only ITD's inner steps depend on ε"
    assert all(fine[letter] > coarse[letter] for letter in ("Q", "S", "D_f", "D_g", "B"))


def descend(problem, algorithm, steps):
    """‖∇Φ(x_k)‖² and ‖y_k⁰ − y*(x_k)‖ for k = 0, ..., K − 1."""
    oracle, form = make(problem), problem.model
    state = algorithm.init(oracle, problem.x0, problem.y0)
    for _ in range(steps):
        distance = (state.y - form.solution(state.x)).norm()
        yield float(form.hypergradient(state.x).square().sum()), float(distance)
        state, _ = algorithm.step(View.of(oracle, state.step), state)


@pytest.mark.parametrize(("name", "method"), [("aid-bio", AIDBiO), ("itd-bio", ITDBiO)])
def test_the_plan_really_gives_a_stationary_point_within_its_steps(name, method):
    """κ = 2, Φ'' = 10 where L_Φ = 18, and a start whose ‖∇Φ‖² is four times what is asked for."""
    H, F = torch.diag(torch.tensor([1.0, 2.0]).double()), 2 * torch.eye(2).double()
    problem = bilevel.quadratic_problem(H, F[:, :1], 0.02 * F[0], F, F[0] / 2, r=2.0)
    form, at = problem.model, truth(problem, problem.x0)
    curvature = form.hypergradient(torch.ones(1).double()) - at.gradient
    constants = estimate(problem, problem.x0, problem.y0)
    constants = constants.but(M=Constant(2.0, Kind.BOUND, "‖F(y − d)‖ on the way"))
    epsilon = float(at.gradient**2) / 4
    start = {
        "gap": float(at.gradient**2 / curvature / 2),
        "y_distance": 0.3,  # of every start, as is seen below
        "v_distance": float(at.v.norm()),
    }
    made = plan(constants, name, epsilon, **start)
    assert 100 < made.steps < 300
    seen = list(descend(problem, method(**made.settings), made.steps))
    assert seen[0][0] == pytest.approx(4 * epsilon)
    assert max(distance for _, distance in seen) <= start["y_distance"]
    assert sum(squared for squared, _ in seen) / made.steps <= epsilon


GOOD = CONSTANTS["a quadratic"]


@claims(
    ("no μ", lambda: plan(known(L_g=1.0), "aid-bio", 0.1), ValueError, "μ = 0.0 .given. … ridge"),
    ("unknown", lambda: plan(GOOD, "hoag", 0.1), ValueError, "'hoag' … aid-bio, itd-bio"),
    ("ε = 0", lambda: plan(GOOD, "aid-bio", 0.0), ValueError, "epsilon … positive … got 0.0"),
    ("ε = nan", lambda: plan(GOOD, "stocbio", math.nan), ValueError, "epsilon … got nan"),
    ("a text", lambda: plan(GOOD, "itd-bio", "1e-3"), ValueError, "epsilon … got '1e-3'"),
    ("a gap", lambda: plan(GOOD, "itd-bio", 1.0, gap=-2.0), ValueError, "gap … at least 0, got -2"),
    (
        "a distance",
        lambda: plan(GOOD, "aid-bio", 1.0, y_distance=-1.0),
        ValueError,
        "y_distance … at least 0, got -1",
    ),
)
def test_wrong_arguments_are_quoted(provoke, error, text):
    assert_raises(provoke, error, text)


def test_a_theorem_that_asks_for_more_rows_than_there_are_gets_all_of_them():
    rows = torch.linspace(-1, 1, 40).double().view(20, 2)
    problem = bilevel.Problem(
        outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        x0=torch.ones(2).double(),
        y0=torch.zeros(2).double(),
        outer_data=rows,
        inner_data=rows,
    )
    algorithm = bilevel.theory.stocbio(problem, 0.1)
    assert algorithm.batch["inner"] > 20
    assert bilevel.minimize(problem, algorithm, steps=1).status == "step_limit"
