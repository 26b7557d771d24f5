"""The paper's formulas, as derived in its proofs.

Where a printed formula and its proof differ, the proof counts; docs/errata.md has the derivations.
Arguments are the paper's letters: L smoothness, μ strong convexity, M the Lipschitz constant of f,
ρ and τ those of ∇²y g and ∇x∇y g, σ the noise of a row's gradient, κ = L/μ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bilevel.theory.constants import Constants


@dataclass(frozen=True)
class Letters:
    """The constants as plain numbers, in the paper's letters."""

    L: float
    mu: float
    M: float
    rho: float
    tau: float
    sigma: float

    @staticmethod
    def of(constants: Constants) -> Letters:
        c = constants
        if not c.mu.value > 0:
            raise ValueError(
                f"μ = {c.mu.value} ({c.mu.how}): the theory needs a strongly convex inner loss. "
                "Add a ridge."
            )
        # For (x, y) together, with ‖z − z'‖ ≤ ‖x − x'‖ + ‖y − y'‖; ∇²y g moves with x by τ.
        rho, tau = max(c.rho.value, c.tau.value), max(c.tau.value, c.tau_x.value)
        return Letters(c.L, c.mu.value, c.M.value, rho, tau, c.sigma.value)

    @property
    def kappa(self) -> float:
        return self.L / self.mu


def smoothness(c: Letters) -> float:
    """L_Φ, the Lipschitz constant of ∇Φ (Lemma 2).

    (1 + κ)(L + L²/μ + τM/μ + ρLM/μ²) = L + (2L² + τM)/μ + (ρLM + L³ + τML)/μ² + ρL²M/μ³. The
    paper prints τM² for τM.
    """
    return (1 + c.kappa) * sensitivity(c)


def sensitivity(c: Letters) -> float:
    """L + L²/μ + Mτ/μ + LMρ/μ²: how strongly the hypergradient depends on ‖y − y*‖ (Lemma 7)."""
    return c.L + c.L**2 / c.mu + c.M * c.tau / c.mu + c.L * c.M * c.rho / c.mu**2


def solution_drift(c: Letters) -> float:
    """How fast v*(x) moves with x: (κ + ρM/μ²)(1 + κ).

    From v* = H⁻¹∇y f and ‖∂y*/∂x‖ ≤ κ. The paper prints κ² + 2ML/μ² + 2LMκ/μ².
    """
    return (c.kappa + c.rho * c.M / c.mu**2) * (1 + c.kappa)


def gamma(c: Letters) -> float:
    """Γ of the AID lemma, 3L² + 3τ²M²/μ² + 6L²(1 + √κ)²(κ + ρM/μ²)²."""
    return 3 * c.L**2 + 3 * c.tau**2 * c.M**2 / c.mu**2 + 6 * c.L**2 * linear_sensitivity(c)


def linear_sensitivity(c: Letters) -> float:
    """(1 + √κ)²(κ + ρM/μ²)²: how much of ‖y − y*‖² enters ‖v − v*‖², up to a factor 2."""
    return (1 + math.sqrt(c.kappa)) ** 2 * (c.kappa + c.rho * c.M / c.mu**2) ** 2


def gamma_v(c: Letters) -> float:
    """24L²κ, the factor of ‖v⁰ − v*‖² in the AID lemma, next to Γ for ‖y⁰ − y*‖².

    The paper has 6 for 24, from a bound of CG without its factor 2.
    """
    return 24 * c.L**2 * c.kappa


def aid_error(
    c: Letters, alpha: float, D: int, N: int, y_distance: float, v_distance: float
) -> float:
    """The AID lemma: a bound on ‖∇̂Φ − ∇Φ‖ after D gradient steps and N steps of CG.

    √(Γ(1 − αμ)^D ‖y⁰ − y*‖² + 24L²κ ((√κ − 1)/(√κ + 1))^2N ‖v⁰ − v*‖²)
    """
    of_y = gamma(c) * (1 - alpha * c.mu) ** D * y_distance**2
    of_v = gamma_v(c) * cg_rate(c) ** (2 * N) * v_distance**2
    return math.sqrt(of_y + of_v)


def cg_rate(c: Letters) -> float:
    """(√κ − 1)/(√κ + 1): after N steps CG's error is at most 2√κ times its N-th power."""
    return (math.sqrt(c.kappa) - 1) / (math.sqrt(c.kappa) + 1)


def itd_error(c: Letters, alpha: float, D: int, y_distance: float) -> float:
    """The ITD lemma: a bound on ‖∂f(x, y^D)/∂x − ∇Φ‖ after D steps from a start free of x."""
    q = 1 - alpha * c.mu
    smooth = c.L * (c.L + c.mu) / c.mu * math.pow(q, D / 2)
    curved = 2 * c.M * (c.tau * c.mu + c.L * c.rho) / c.mu**2 * math.pow(q, (D - 1) / 2)
    return (smooth + curved) * y_distance + c.L * c.M / c.mu * math.pow(q, D)


def neumann_bias(c: Letters, eta: float, Q: int) -> float:
    """Proposition 3: ‖E v_Q − H⁻¹∇y f‖ ≤ (1 − ημ)^(Q+1) M/μ."""
    return (1 - eta * c.mu) ** (Q + 1) * c.M / c.mu


def neumann_error(c: Letters, eta: float, Q: int, B: float, D_f: float) -> float:
    """Proposition 3: E‖v_Q − H⁻¹∇y f‖² is at most this.

    4η²L²M²/(μ²B) + 4(1 − ημ)^(2Q+2) M²/μ² + 2M²/(μ²D_f).
    """
    scale = (c.M / c.mu) ** 2
    of_hessians = 4 * eta**2 * c.L**2 * scale / B
    return of_hessians + 4 * scale * (1 - eta * c.mu) ** (2 * Q + 2) + 2 * scale / D_f
