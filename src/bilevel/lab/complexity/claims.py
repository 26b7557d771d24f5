"""What the paper says of Tables 1 and 2, judged by the rule of verdicts.

A seed's gain is above zero where the claim is right. Which settings were tried must not decide: the
verdict is that of the whole grid if it stays the same with each setting left out in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bilevel.lab.complexity.fits import Trials, points, powers_by_seed, without
from bilevel.lab.complexity.measure import Trial, cheapest
from bilevel.lab.complexity.methods import Method
from bilevel.lab.complexity.studies import Study
from bilevel.lab.complexity.tables import NEAR, PRINTED
from bilevel.lab.experiments.rule import ERROR, Gain, Verdict, decide
from bilevel.lab.experiments.verdicts import Finding, Row
from bilevel.lab.quantities import COUNTS

_KAPPA, _EPSILON = 0, 1  # which of the fitted powers
_SYMBOLS = ("κ", "(1/ε)")
Judge = Callable[[Trials], list[Gain]]


@dataclass(frozen=True)
class Claim:
    """A claim on a study.

    Args:
        text: what the paper says.
        methods: whose settings are left out in turn.
        judge: the comparisons, from what was measured.
    """

    text: str
    methods: tuple[str, ...]
    judge: Judge


def claims(studies: Sequence[tuple[Study, Trials]]) -> list[Row]:
    """A row for each claim; all of them share the error."""
    found = [(claim, study, trials) for study, trials in studies for claim in _claims(study)]
    return [_row(claim, study, trials, ERROR / len(found)) for claim, study, trials in found]


def _row(claim: Claim, study: Study, trials: Trials, error: float) -> Row:
    gains = claim.judge(trials)
    verdict = decide(gains, error)
    others = [decide(claim.judge(part), error) for part in _parts(claim, trials)]
    same = others.count(verdict)
    numbers = f"of {len(others)} grids with a setting less, {same} say {verdict}, as the whole does"
    where = f"{study.title.partition(',')[0]}, κ from {study.kappas[0]:g} to {study.kappas[-1]:g}"
    row = Row.of(claim.text, where, Finding(tuple(gains), numbers), error, study.seeds)
    return row if same == len(others) else replace(row, verdict=str(Verdict.UNDECIDED))


def _parts(claim: Claim, trials: Trials) -> Iterator[Trials]:
    """The trials with each setting of the claim's methods left out, where as much is reached."""
    for name in claim.methods:
        own = {key: runs for key, runs in trials.items() if key[0] == name}
        for label in sorted({run.label for runs in own.values() for run in runs}):
            part = without(label, own)
            if all(_reached(part[key]) == _reached(runs) for key, runs in own.items()):
                yield trials | part


def _reached(runs: Sequence[Trial]) -> int:
    return max((sum(price is not None for price in run.prices) for run in runs), default=0)


def _claims(study: Study) -> Iterator[Claim]:
    by_name = {method.name: method for method in study.methods}
    for name, method in by_name.items():
        if name in PRINTED:
            text = f"{method.title} needs at most the orders that are printed"
            yield Claim(text, (name,), partial(_at_most, study, method))
    if {"stocbio", "bsa", "ttsa"} <= by_name.keys():
        ours, bsa, ttsa = (by_name[name] for name in ("stocbio", "bsa", "ttsa"))
        for text, counts, power, rival in (
            ("stocBiO's Gc(f) and JV grow more slowly with κ than BSA's", ("gc_f", "jv"), 0, bsa),
            ("stocBiO's Gc(g) grows more slowly with 1/ε than BSA's", ("gc_g",), 1, bsa),
            ("all of stocBiO's counts grow more slowly with 1/ε than TTSA's", COUNTS, 1, ttsa),
        ):
            judge = partial(_slower, study, ours, rival, tuple(counts), power)
            yield Claim(text, (ours.name, rival.name), judge)
        text = (
            "stocBiO, with Theorem 3's batches and an outer step of 1/L_Φ, needs fewer samples "
            f"than BSA and TTSA at κ = {study.kappas[-1]:g}, ε = {study.epsilons[-1]:g}"
        )
        yield Claim(text, tuple(by_name), partial(_fewer, study, ours, (bsa, ttsa)))


def _powers(
    study: Study, trials: Trials, method: Method, count: str, power: int
) -> tuple[float, ...]:
    """By seed; none where some seed reached too little."""
    found = powers_by_seed(study, points(study, trials, method, count))
    return tuple(seed[power] for seed in found or ())


def _at_most(study: Study, method: Method, trials: Trials) -> list[Gain]:
    """The printed order and what a short range may add to it, minus the power."""
    return [
        Gain(
            f"{COUNTS[count]}, room below {_SYMBOLS[power]}^{order + NEAR:g}",
            tuple(order + NEAR - p for p in _powers(study, trials, method, count, power)),
        )
        for count, printed in PRINTED[method.name].items()
        for power, order in ((_KAPPA, printed.kappa), (_EPSILON, printed.epsilon))
        if order is not None
    ]


def _slower(
    study: Study,
    ours: Method,
    rival: Method,
    counts: tuple[str, ...],
    power: int,
    trials: Trials,
) -> list[Gain]:
    """The rival's power minus ours."""

    def of(method: Method, count: str) -> tuple[float, ...]:
        return _powers(study, trials, method, count, power)

    return [
        Gain(
            f"{COUNTS[count]}, power of {_SYMBOLS[power]}, {rival.title} − {ours.title}",
            tuple(b - a for a, b in zip(of(ours, count), of(rival, count), strict=False)),
        )
        for count in counts
    ]


def _fewer(study: Study, ours: Method, rivals: Sequence[Method], trials: Trials) -> list[Gain]:
    """ln of the ratio of all samples at the hardest κ and ε; 0 where one is missing."""

    def total(method: Method, seed: int) -> int:
        best = cheapest(trials[method.name, study.kappas[-1], seed], len(study.epsilons) - 1)
        return 0 if best is None else best[1].total

    def gain(rival: Method, seed: int) -> float:
        mine, theirs = total(ours, seed), total(rival, seed)
        return math.log(theirs / mine) if mine and theirs else 0.0

    return [
        Gain(
            f"{ours.title} against {rival.title}, samples",
            tuple(gain(rival, seed) for seed in range(study.seeds)),
            "ratio",
        )
        for rival in rivals
    ]
