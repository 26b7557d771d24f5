"""Step sizes, loop counts and batch sizes that the paper's theorems require."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bilevel.arguments import Checked, NonNegative, Positive
from bilevel.errors import pick
from bilevel.record import Record
from bilevel.theory.constants import Constants
from bilevel.theory.formulas import (
    Letters,
    cg_rate,
    gamma,
    gamma_v,
    linear_sensitivity,
    sensitivity,
    smoothness,
    solution_drift,
)


@dataclass(frozen=True)
class Row(Record):
    """A number of a plan: its letter, its value and its source."""

    letter: str
    value: float
    source: str


@dataclass(frozen=True)
class Plan(Record):
    """The settings that a theorem requires.

    Args:
        algorithm: its name in the registry.
        rows: every number with its source.
        settings: the algorithm's arguments.
        steps: K, the outer steps after which the mean of ‖∇Φ(x_k)‖² is at most ε.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(I, I, I[0], I, I[1])
        >>> made = bilevel.theory.plan_for(problem, "aid-bio", 0.1)
        >>> [row.source for row in made.rows if row.letter == "α"]
        ['Theorem 1: α ≤ 1/L']
    """

    algorithm: str
    rows: tuple[Row, ...]
    settings: dict[str, Any]
    steps: int

    def __str__(self) -> str:
        lines = [f"{row.letter:4} {row.value:<14.6g} {row.source}" for row in self.rows]
        return "\n".join([f"{self.algorithm}:", *lines])


@dataclass(frozen=True)
class Target(Checked):
    """The target, and how far the start is from it."""

    epsilon: Positive
    gap: NonNegative  # Φ(x_0) − inf Φ
    y_distance: NonNegative  # ‖y_0 − y*‖
    v_distance: NonNegative  # ‖v_0 − v*‖


def plan(
    constants: Constants,
    algorithm: str,
    epsilon: float,
    *,
    gap: float = 1.0,
    y_distance: float = 1.0,
    v_distance: float = 1.0,
) -> Plan:
    """The settings with which the paper guarantees an ε-stationary point.

    They are safe but slow, as they scale with κ³ or worse. Use them to see what the theory
    guarantees, and the algorithms' default settings for actual work.

    Args:
        constants: of `estimate`. Theorem 3 assumes them of each row's loss, not of the mean.
        algorithm: "aid-bio" (Theorem 1), "itd-bio" (Theorem 2) or "stocbio" (Theorem 3).
        epsilon: ε: the mean of ‖∇Φ(x_k)‖² over the K steps (its expectation, for stocBiO).
        gap: Φ(x_0) − inf Φ.
        y_distance: ‖y_0 − y*(x_0)‖; for ITD-BiO, of every step's start.
        v_distance: ‖v_0 − v*(x_0)‖.

    Example:
        >>> from bilevel.theory import Constant, Constants, Kind, plan
        >>> two, one, zero = (Constant(v, Kind.EXACT, "given") for v in (2.0, 1.0, 0.0))
        >>> constants = Constants(
        ...     mu=one, L_g=two, cross=one, L_fx=zero, L_fy=one, L_xx=zero, M=one,
        ...     rho=zero, tau=zero, tau_x=zero, sigma=zero)
        >>> made = plan(constants, "aid-bio", epsilon=0.1)
        >>> made.settings["inner_lr"], made.settings["cg_steps"] < made.settings["inner_steps"]
        (0.5, True)
    """
    theorem = pick("theorem for", algorithm, _PLANS)
    return theorem(Letters.of(constants), Target(epsilon, gap, y_distance, v_distance))


def _aid_bio(c: Letters, target: Target) -> Plan:
    """Theorem 1, and the conditions on D and N in its proof."""
    L_phi, drift, Gamma = smoothness(c), solution_drift(c), gamma(c)
    alpha, beta = 1 / c.L, 1 / (8 * L_phi)
    # ‖y⁰ − y*‖² + ‖v⁰ − v*‖² of the next step is at most that of this one with its parts times
    # a(1 − αμ)^D and b·rate^2N, which D and N make ½, plus Ω‖∇Φ‖².
    omega = 4 * beta**2 * (c.kappa**2 + drift**2)
    a = 2 + 4 * linear_sensitivity(c) + omega * Gamma
    b = 16 * c.kappa + omega * gamma_v(c)
    delta = min(1.0, 1 / (4 * omega * (1 + 2 * beta * L_phi)))
    D = max(1, _power(2 * max(a, Gamma / delta), 1 - alpha * c.mu))
    N = max(1, _power(2 * max(b, gamma_v(c) / delta), cg_rate(c) ** 2))
    distance = target.y_distance**2 + target.v_distance**2
    K = _count((64 * L_phi * target.gap + 10 * distance) / target.epsilon)
    rows = (
        *_constants(c, L_phi),
        Row("α", alpha, "Theorem 1: α ≤ 1/L"),
        Row("β", beta, "Theorem 1: 1/(8 L_Φ)"),
        Row("Γ", Gamma, "AID lemma"),
        Row("Ω", omega, "tracking lemma: how much of ‖∇Φ‖² the distances feel"),
        Row("δ", delta, "proof of Theorem 1: δ_{D,N} ≤ 1 and (Ω + 2ΩβL_Φ) δ_{D,N} ≤ 1/4"),
        Row("D", D, "tracking lemma, with 1 − αμ where the paper prints 1 − α; and δ"),
        Row("N", N, "tracking lemma, with CG's factor 2 and the drift of v* as derived; and δ"),
        Row("K", K, "Theorem 1: (64 L_Φ (Φ(x_0) − inf Φ) + 10Δ_0)/ε; the paper prints 5"),
    )
    settings = {"inner_steps": D, "inner_lr": alpha, "cg_steps": N, "outer_lr": beta}
    return Plan("aid-bio", rows, settings, K)


def _itd_bio(c: Letters, target: Target) -> Plan:
    """Theorem 2: each of the three error terms of its proof is at most 2ε/81."""
    L_phi = smoothness(c)
    alpha, beta, q = 1 / c.L, 1 / (4 * L_phi), 1 - c.mu / c.L
    share, distance = 2 * target.epsilon / 81, target.y_distance**2
    curved = (c.tau * c.mu + c.L * c.rho) ** 2
    D = max(
        1,
        _power(c.L * c.M / c.mu / math.sqrt(share), q),
        _power(distance * (c.L * (c.L + c.mu) / c.mu) ** 2 / share, q),
        _power(4 * distance * c.M**2 * curved / c.mu**4 / share, q) + 1,
    )
    K = _count(48 * L_phi * target.gap / target.epsilon)
    rows = (
        *_constants(c, L_phi),
        Row("α", alpha, "Theorem 2: α ≤ 1/L"),
        Row("β", beta, "Theorem 2: 1/(4 L_Φ)"),
        Row("D", D, "proof of Theorem 2: three terms of 2ε/81 each"),
        Row("K", K, "Theorem 2: 16 L_Φ (Φ(x_0) − inf Φ)/K ≤ ε/3"),
    )
    return Plan("itd-bio", rows, {"inner_steps": D, "inner_lr": alpha, "outer_lr": beta}, K)


def _stocbio(c: Letters, target: Target) -> Plan:
    """Theorem 3: each of the six terms of its last bound is at most ε/6."""
    L_phi, felt = smoothness(c), sensitivity(c)
    alpha, beta, eta = 2 / (c.L + c.mu), 1 / (4 * L_phi), 1 / max(c.L, 2 * c.mu)
    rate, q = (c.L - c.mu) / (c.L + c.mu), 1 - eta * c.mu
    D = max(
        1,
        _power(12 + 60 * (beta * c.kappa * felt) ** 2, rate**2),
        _power(math.sqrt(beta) * felt, rate),
    )
    share, scale, nu = target.epsilon / 6, (c.L * c.M / c.mu) ** 2, 1.5 * felt**2
    K = _count(8 * (target.gap + 2.5 * target.y_distance**2) / (beta * share))
    S = _count(32 * nu * c.sigma**2 / (c.L * c.mu * share))
    D_g = _count(11 / 3 * 4 * scale / share)
    D_f = _count(11 / 3 * (8 * c.kappa**2 + 2) * c.M**2 / share)
    Q = max(1, _power((11 / 3 * 17 + 8) * scale / share, q**2))
    least = 1 / (Q * q ** (Q - 1))  # Proposition 3: no batch is empty
    B = math.ceil(max(11 / 3 * 16 * (eta * c.L) ** 2 * scale / share, least))
    rows = (
        *_constants(c, L_phi),
        Row("α", alpha, "tracking lemma of Theorem 3: 2/(L + μ)"),
        Row("β", beta, "Theorem 3: 1/(4 L_Φ)"),
        Row("η", eta, "Proposition 3: η ≤ 1/L; and at most 1/(2μ), so that batches do not vanish"),
        Row("D", D, "proof of Theorem 3, with the Neumann bias in Lemma 8"),
        Row("Q", Q, "Theorem 3: the bias (1 − ημ)^2Q, a sixth of ε"),
        Row("S", S, "Theorem 3: the noise of an inner step, a sixth of ε"),
        Row("D_g", D_g, "Theorem 3: the noise of the cross product, a sixth of ε"),
        Row("D_f", D_f, "Theorem 3: the noise of ∇f, a sixth of ε"),
        Row("B", B, "Theorem 3 and Proposition 3: batches B·Q·(1 − ημ)^(j−1)"),
        Row("K", K, "Theorem 3: a sixth of ε"),
    )
    settings = {
        "inner_steps": D,
        "inner_lr": alpha,
        "neumann_terms": Q,
        "neumann_lr": eta,
        "strong_convexity": c.mu,
        "batch": {"inner": S, "outer": D_f, "hessian": B, "cross": D_g},
        "outer_lr": beta,
    }
    return Plan("stocbio", rows, settings, K)


def _constants(c: Letters, L_phi: float) -> tuple[Row, ...]:
    return (
        Row("L", c.L, "Assumption 2"),
        Row("μ", c.mu, "Assumption 1"),
        Row("κ", c.kappa, "L/μ"),
        Row("M", c.M, "Assumption 2"),
        Row("ρ", c.rho, "Assumption 3"),
        Row("τ", c.tau, "Assumption 3"),
        Row("σ", c.sigma, "Assumption 4"),
        Row("L_Φ", L_phi, "Lemma 2, with τM where the paper prints τM²"),
    )


def _power(factor: float, rate: float) -> int:
    """The least n ≥ 0 with factor · rate^n ≤ 1."""
    if factor <= 1 or rate <= 0:
        return int(factor > 1)
    return math.ceil(math.log(factor) / -math.log(rate))


def _count(number: float) -> int:
    return max(1, math.ceil(number))


_PLANS: dict[str, Callable[[Letters, Target], Plan]] = {
    "aid-bio": _aid_bio,
    "itd-bio": _itd_bio,
    "stocbio": _stocbio,
}
