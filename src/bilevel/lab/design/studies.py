"""The studies: a claim of the paper's text each, measured as pairs of costs, seed by seed.

A study gives, for each comparison, what the paper's choice costs and what its rival does, each
with whether it arrived: else the cost is a lower bound. The gain is ln(rival / ours).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bilevel.algorithms import AIDBiO, Algorithm, StocBiO
from bilevel.lab.complexity.family import Family, make_family
from bilevel.lab.complexity.measure import race
from bilevel.lab.complexity.methods import Candidate, Scale
from bilevel.lab.complexity.page import promise
from bilevel.lab.complexity.walls import BentWall, RoundWall
from bilevel.lab.design.estimator import RowSystem, variance
from bilevel.schedules import increasing
from bilevel.solvers.linear import SampledNeumann
from bilevel.theory.formulas import Letters, neumann_bias, neumann_error

Paid = tuple[float, bool]
Pairs = dict[str, tuple[Paid, Paid]]  # ours, rival
_DRAWS = 400
_ROWS = 20_000
_SHARES = (1, 2, 3)  # of 1/L_Φ, the outer steps that are tried


@dataclass(frozen=True)
class Study:
    """A design claim.

    Args:
        name: in files.
        claim: what the paper says.
        how: what was measured.
        measure: seed -> the pairs.
    """

    name: str
    claim: str
    how: str
    measure: Callable[[int], Pairs]


def _batches(seed: int) -> Pairs:
    found = {}
    for kappa, longer in itertools.product((5, 20), (1, 3)):
        system, terms = RowSystem.drawn(kappa, seed), longer * kappa
        decaying = SampledNeumann(terms, 1.0, 2, 1 / kappa).batch_sizes(10**9, 1.0)
        sizes = [size or 0 for size in decaying]
        # Never fewer rows in all than the decaying batches have.
        equal = [math.ceil(sum(sizes) / terms)] * terms
        ours, rival = (
            variance(system.estimates(each, 1.0, None, _DRAWS, 1000 + seed))
            for each in (sizes, equal)
        )
        found[f"κ = {kappa}, Q = {terms}"] = (ours, True), (rival, True)
    return found


def _bounds(seed: int) -> Pairs:
    found = {}
    for kappa, longer in itertools.product((5, 20), (1, 3)):
        system, terms, size, outer = RowSystem.drawn(kappa, seed), longer * kappa, 2, 50
        letters = Letters(L=1.0, mu=1 / kappa, M=1.0, rho=0.0, tau=0.0, sigma=1.0)
        error = system.expectation(terms, 1.0) - system.solution
        bias = float((error @ error) ** 0.5)
        sizes = SampledNeumann(terms, 1.0, size, 1 / kappa).batch_sizes(10**9, 1.0)
        drawn = system.estimates([s or 0 for s in sizes], 1.0, outer, _DRAWS, 2000 + seed)
        squared = float(((drawn - system.solution) ** 2).sum(1).mean())
        where = f"κ = {kappa}, Q = {terms}"
        bounds = (
            neumann_bias(letters, 1.0, terms),
            neumann_error(letters, 1.0, terms, size, outer),
        )
        found[f"bias, {where}"] = (bias, True), (bounds[0], True)
        found[f"squared error, {where}"] = (squared, True), (bounds[1], True)
    return found


def _cost(family: Family, trials: Iterable[Algorithm], epsilon: float, calls: int) -> Paid:
    """What the cheapest of some trials paid until ε; if none arrived, the most calls of one."""
    candidates = [Candidate(str(number), trial) for number, trial in enumerate(trials)]
    raced = race(family, candidates, [epsilon], calls)
    paid = [trial.prices[0].total for trial in raced if trial.prices[0] is not None]
    return float(min(paid, default=max(trial.calls for trial in raced))), bool(paid)


def _aid(family: Family, steps: Iterable[int | increasing], warm: bool = True) -> list[Algorithm]:
    scale = Scale(family.kappa, family.smoothness, 1.0)
    return [
        AIDBiO(
            inner_steps=D,
            inner_lr=1.0,
            cg_steps=scale.cg_steps,
            outer_lr=share / family.smoothness,
            warm_start=warm,
        )
        for D in steps
        for share in _SHARES
    ]


def _families(seed: int) -> dict[str, Family]:
    return {
        "bent, κ = 8": make_family(BentWall(8.0), seed),
        "quadratic, κ = 12": make_family(RoundWall(12.0), seed),
    }


def _warm(seed: int) -> Pairs:
    found = {}
    for name, family in _families(seed).items():
        D = [math.ceil(family.kappa)]
        ours, rival = (_cost(family, _aid(family, D, warm), 0.5, 30_000) for warm in (True, False))
        found[name] = ours, rival
    return found


def _growing(seed: int) -> Pairs:
    found = {}
    for name, family in _families(seed).items():
        constant = [max(1, round(family.kappa / share)) for share in (1, 2, 4)]
        growing = [increasing(family.kappa / share, power=0.25) for share in (2, 4, 8)]
        ours = _cost(family, _aid(family, constant), 0.35, 60_000)
        found[name] = ours, _cost(family, _aid(family, growing), 0.35, 60_000)
    return found


def _mini(seed: int) -> Pairs:
    family = make_family(RoundWall(4.0), seed, _ROWS)

    def stocbio(batch: int, share: float) -> StocBiO:
        return StocBiO(
            inner_steps=4,
            inner_lr=0.8,
            neumann_terms=8,
            neumann_lr=0.8,
            batch=batch,
            outer_lr=share / family.smoothness,
        )

    batches = [stocbio(b, 1.0) for b in (8, 32, 128)]
    single = [stocbio(1, share) for share in (0.25, 1 / 16, 1 / 64)]
    return {
        f"κ = 4, ε = {epsilon}": (
            _cost(family, batches, epsilon, 60_000),
            _cost(family, single, epsilon, 60_000),
        )
        for epsilon in (1.0, 0.5)
    }


def _theorem(seed: int) -> Pairs:
    family, epsilon = make_family(BentWall(8.0), seed), 0.5
    trials = [Candidate(str(n), a) for n, a in enumerate(_aid(family, [8]))]
    prices = [trial.prices[0] for trial in race(family, trials, [epsilon], 60_000)]
    steps = min(price.steps for price in prices if price is not None)
    asked = float(promise(family, "aid-bio", epsilon).steps)
    return {"outer steps, bent, κ = 8": ((float(steps), True), (asked, True))}


STUDIES = (
    Study(
        "hessian-batches",
        "Hessian batches that decay exponentially are more sample-efficient than equal ones",
        "variance of v_Q of Algorithm 3 over 400 draws, decaying batches (B = 2) against equal "
        "ones with at least as many rows; rank-one rows with L = 1, η = 1",
        _batches,
    ),
    Study(
        "bounds",
        "Proposition 3 bounds the bias and the squared error of v_Q",
        "the bound over what was measured (bias in closed form, squared error over 400 draws; "
        "B = 2, D_f = 50): a factor above 1 holds, and says how loose it is",
        _bounds,
    ),
    Study(
        "warm-start",
        "warm starts of y and v yield an improved computational complexity",
        "all oracle calls of AID-BiO until ‖∇Φ‖² ≤ 0.5, D = κ, N = √κ, three outer steps tried "
        "by each; without warm starts y begins at y₀ and v at 0 in every outer step",
        _warm,
    ),
    Study(
        "constant-steps",
        "a constant number of inner steps needs less than one that grows as k^¼",
        "all oracle calls of AID-BiO until ‖∇Φ‖² ≤ 0.35, nine settings tried by each: "
        "D = κ, κ/2, κ/4 against ⌈c(k+1)^¼⌉ with c = κ/2, κ/4, κ/8, times three outer steps",
        _growing,
    ),
    Study(
        "mini-batches",
        "mini-batches are more sample-efficient than single samples",
        "samples of stocBiO until ‖∇Φ‖² ≤ ε, D = 4, Q = 8, three settings tried by each: "
        "batches of 8, 32, 128 at 1/L_Φ against single samples at 1/4, 1/16 and 1/64 of it",
        _mini,
    ),
    Study(
        "theorem-settings",
        "Theorem 1's number of outer steps is enough",
        "outer steps by Theorem 1 over those that the best of three tuned outer steps needed "
        "until ‖∇Φ‖² ≤ 0.5: a factor above 1 is what the theorem asks for too much",
        _theorem,
    ),
)
