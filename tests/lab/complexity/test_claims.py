"""What is said of orders: trials whose powers are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bilevel.lab.complexity.claims import claims
from bilevel.lab.complexity.fits import Trials
from bilevel.lab.complexity.measure import Price, Trial
from bilevel.lab.complexity.methods import DETERMINISTIC
from bilevel.lab.complexity.studies import BENT, SAMPLED
from bilevel.lab.experiments.rule import Verdict

SEEDS = 6
TABLE_1 = replace(BENT, methods=DETERMINISTIC[:1], kappas=(4, 8, 16), epsilons=(1.0, 0.5), seeds=6)
TABLE_2 = replace(SAMPLED, kappas=(4, 8, 16), epsilons=(1.0, 0.5), seeds=6)


def paid(p: float, q: float, factor: float = 1.0, of: str = "only") -> dict[str, tuple[float, ...]]:
    """A candidate that pays factor · κ^p ε^−q, in all four counts."""
    return {of: (p, q, factor)}


def trials(study: object, **methods: dict[str, tuple[float, ...]]) -> Trials:
    """By method, its candidates; powers differ a little from seed to seed."""
    found: Trials = {}
    for name, candidates in methods.items():
        for kappa in study.kappas:  # type: ignore[attr-defined]
            for seed in range(SEEDS):
                found[name.replace("_", "-"), kappa, seed] = [
                    Trial(
                        label,
                        tuple(
                            Price(1, *[round(1e4 * c * kappa ** (p + 0.01 * seed) * e**-q)] * 4)
                            for e in study.epsilons  # type: ignore[attr-defined]
                        ),
                        "reached", 1, 1, 0.0,
                    )
                    for label, (p, q, c) in candidates.items()
                ]  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("kappa", "epsilon", "verdict"),
    [
        (2.9, 0.9, Verdict.CONFIRMED),
        (3.2, 1.2, Verdict.CONFIRMED),  # above the order by less than a short range can do
        (3.5, 0.9, Verdict.CONTRADICTED),  # Gc(f) and JV have κ³
        (2.9, 1.5, Verdict.CONTRADICTED),
        (3.28, 0.9, Verdict.UNDECIDED),
    ],
)
def test_an_order_is_an_upper_bound(kappa: float, epsilon: float, verdict: Verdict) -> None:
    (row,) = claims([(TABLE_1, trials(TABLE_1, aid_bio=paid(kappa, epsilon)))])
    assert (row.verdict, row.seeds) == (verdict, SEEDS)
    assert "weakest of 8" in row.weakest


def test_a_verdict_that_hangs_on_one_setting_is_none() -> None:
    """The best setting pays less than the others at great κ alone, so that its power is small."""
    both = paid(2.5, 0.9, 4.0, "lucky") | paid(3.5, 0.9, 1.0, "usual")
    (row,) = claims([(TABLE_1, trials(TABLE_1, aid_bio=both))])
    assert row.verdict == Verdict.UNDECIDED
    assert "of 2 grids with a setting less" in row.numbers


def test_table_2_compares_powers_and_samples() -> None:
    """stocBiO: κ⁵ε⁻² as printed; BSA: a power of κ and of 1/ε more; TTSA: as much as stocBiO."""
    one, more = paid(4.5, 2.0), paid(5.5, 3.0, 2.0)
    rows = claims([(TABLE_2, trials(TABLE_2, stocbio=one, bsa=more, ttsa=paid(4.5, 2.0, 0.5)))])
    said = {row.claim.split(", with")[0]: row.verdict for row in rows}
    assert said == {
        "stocBiO needs at most the orders that are printed": "confirmed",
        "BSA needs at most the orders that are printed": "contradicted",  # ε⁻³ in Gc(f)
        "TTSA needs at most the orders that are printed": "confirmed",
        "stocBiO's Gc(f) and JV grow more slowly with κ than BSA's": "confirmed",
        "stocBiO's Gc(g) grows more slowly with 1/ε than BSA's": "confirmed",
        "all of stocBiO's counts grow more slowly with 1/ε than TTSA's": "undecided",  # a tie
        "stocBiO": "contradicted",  # TTSA pays half
    }
