"""The methods of the two tables, with settings that scale as their theorems do.

Loop counts and batch sizes follow the theorems up to constants. The outer step and, for stocBiO,
the constant of the batch sizes are what a user would tune: each method has a few candidates, and
the cheapest counts. Their order is that of trial: the likely best first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bilevel.algorithms import BSA, TTSA, AIDBiO, Algorithm, ITDBiO, StocBiO
from bilevel.schedules import decaying, increasing

_ALPHA = 1.0  # 1/L
_OUTER = (3, 2, 4, 1)  # shares of 1/L_Φ
_OTHERS = ("outer", "cross", "hessian")  # batches, beside the inner one
_SAMPLED = 0.8  # 1/L of a row, whose Hessian is up to a quarter greater than the mean's


@dataclass(frozen=True)
class Scale:
    """What the settings depend on.

    Args:
        kappa: κ.
        smoothness: L_Φ, the true one.
        epsilon: the smallest ε that is asked for.
    """

    kappa: float
    smoothness: float
    epsilon: float

    @property
    def inner_steps(self) -> int:
        """D = κ."""
        return math.ceil(self.kappa)

    @property
    def cg_steps(self) -> int:
        """N = √κ."""
        return math.ceil(math.sqrt(self.kappa))

    @property
    def neumann_terms(self) -> int:
        """Q = 2κ; the theorems have κ log(κ²/ε). See docs/complexity.md."""
        return math.ceil(2 * self.kappa)


@dataclass(frozen=True)
class Candidate:
    """An algorithm, and which one it is among those of its method."""

    label: str
    algorithm: Algorithm


@dataclass(frozen=True)
class Method:
    """A row of a table.

    Args:
        name: in files, e.g. "aid-bio".
        title: for readers.
        settings: what was set, in a line.
        candidates: the algorithms to choose from.
    """

    name: str
    title: str
    settings: str
    candidates: Callable[[Scale], Sequence[Candidate]]


def _aid(
    inner_steps: Callable[[Scale], int | increasing], shares: Sequence[int] = _OUTER
) -> Callable[[Scale], list[Candidate]]:
    """AID-BiO with D as given; the outer step is one of some shares of 1/L_Φ."""
    return lambda scale: [
        Candidate(
            f"β = {c}/L_Φ",
            AIDBiO(
                inner_steps=inner_steps(scale),
                inner_lr=_ALPHA,
                cg_steps=scale.cg_steps,
                outer_lr=c / scale.smoothness,
            ),
        )
        for c in shares
    ]


def _itd(scale: Scale) -> list[Candidate]:
    D = math.ceil(scale.kappa * max(1.0, math.log(1 / scale.epsilon)))
    return [
        Candidate(
            f"β = {c}/L_Φ",
            ITDBiO(inner_steps=D, inner_lr=_ALPHA, outer_lr=c / scale.smoothness),
        )
        for c in _OUTER
    ]


def _stocbio(scale: Scale) -> list[Candidate]:
    return [
        Candidate(
            f"{b} rows, β = 1/L_Φ",
            StocBiO(
                inner_steps=scale.inner_steps,
                inner_lr=_SAMPLED,
                neumann_terms=scale.neumann_terms,
                neumann_lr=_SAMPLED,
                strong_convexity=1 / scale.kappa,
                batch={"inner": math.ceil(scale.kappa * b), **dict.fromkeys(_OTHERS, b)},
                outer_lr=1 / scale.smoothness,
            ),
        )
        for b in (64, 32, 16, 8, 4, 2)
    ]


def _bsa(scale: Scale) -> list[Candidate]:
    def inner_lr(t: int) -> float:
        return min(_SAMPLED, 2 * scale.kappa / (t + 2))  # 2/(μ(t + 2)), and at most 1/L

    return [
        Candidate(
            f"β_k = {c}/(L_Φ√k)",
            BSA(
                inner_lr=inner_lr,
                neumann_terms=scale.neumann_terms,
                neumann_lr=_SAMPLED,
                outer_lr=decaying(c / scale.smoothness, power=1 / 2),
            ),
        )
        for c in (2, 1)
    ]


def _ttsa(scale: Scale) -> list[Candidate]:
    return [
        Candidate(
            f"α_k = {c}/(L_Φ k^(3/5))",
            TTSA(
                inner_lr=decaying(_SAMPLED, power=2 / 5),
                neumann_terms=scale.neumann_terms,
                neumann_lr=_SAMPLED,
                outer_lr=decaying(c / scale.smoothness, power=3 / 5),
            ),
        )
        for c in (2, 1)
    ]


DETERMINISTIC = (
    Method("aid-bio", "AID-BiO", "D = κ, N = √κ, α = 1/L", _aid(lambda s: s.inner_steps)),
    Method("itd-bio", "ITD-BiO", "D = κ log 1/ε for the smallest ε, α = 1/L", _itd),
    Method(
        "aid-bio-increasing",
        "AID-BiO-increasing",
        "D_k = κ/4 · (k + 1)^(1/4), N = √κ, α = 1/L",
        _aid(lambda s: increasing(s.kappa / 4, power=0.25)),
    ),
    Method(
        "aid-bio-one-step",
        "AID-BiO, D = 1",
        "D = 1, N = √κ, α = 1/L",
        _aid(lambda s: 1, (4, 8, 16, 32, 2)),
    ),
)
STOCHASTIC = (
    Method(
        "stocbio",
        "stocBiO",
        "D = κ, Q = 2κ, S = κb, D_f = D_g = b, |B_j| = bQ(1 − ημ)^(j−1), α = η = 0.8/L",
        _stocbio,
    ),
    Method(
        "bsa",
        "BSA",
        "t_k = √(k + 1) inner steps of 2/(μ(t + 2)) and at most 0.8/L, Q = 2κ, single samples",
        _bsa,
    ),
    Method("ttsa", "TTSA", "one inner step of 0.8 k^(−2/5)/L, Q = 2κ, single samples", _ttsa),
)
