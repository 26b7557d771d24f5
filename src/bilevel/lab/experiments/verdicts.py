"""Verdicts on a paper's claims: what a figure consists of, how it is judged and written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the help of `bilevel reproduce` needs the figures' names, and no NumPy
    from bilevel.lab.curves import Curves


class Verdict(StrEnum):
    """What the runs say of a claim."""

    CONFIRMED = "confirmed"
    PARTLY = "partly"
    CONTRADICTED = "contradicted"

    @staticmethod
    def of(outcomes: Iterable[int]) -> Verdict:
        """From single comparisons: all won (1), all lost (−1), or something between.

        Example:
            >>> str(Verdict.of([1, 1])), str(Verdict.of([1, -1])), str(Verdict.of([-1]))
            ('confirmed', 'partly', 'contradicted')
        """
        seen = set(outcomes)
        whole = {frozenset({1}): Verdict.CONFIRMED, frozenset({-1}): Verdict.CONTRADICTED}
        return whole.get(frozenset(seen), Verdict.PARTLY)


@dataclass(frozen=True)
class Evidence:
    """The runs of one experiment.

    Args:
        curves: of each run, by label.
        seconds: the budget of a run.
    """

    curves: Curves
    seconds: float

    @staticmethod
    def within(curves: Curves, seconds: float) -> Evidence:
        """Only what was measured in time: a step that ends after the budget does not count."""
        kept = {label: [c.within(seconds) for c in seeds] for label, seeds in curves.items()}
        return Evidence(kept, seconds)

    @property
    def seeds(self) -> int:
        return min(map(len, self.curves.values()))


@dataclass(frozen=True)
class Finding:
    """A verdict with its numbers, in a sentence."""

    verdict: Verdict
    numbers: str


Judge = Callable[[Evidence], Finding]
Comparison = Callable[[Mapping[str, Evidence]], Finding]


@dataclass(frozen=True)
class Figure:
    """A figure of a paper.

    Args:
        title: what it shows.
        source: the paper and the figure.
        experiments: names of the package's experiment files that it draws.
        claims: what the paper says of each experiment, and who judges it.
        comparisons: what the paper says of the experiments side by side.
    """

    title: str
    source: str
    experiments: tuple[str, ...]
    claims: Mapping[str, Judge]
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)

    def judge(self, evidence: Mapping[str, Evidence]) -> list[Row]:
        """A row for each claim and experiment."""
        seeds = min(part.seeds for part in evidence.values())
        judged = [
            (claim, name, judge(evidence[name]))
            for name in self.experiments
            for claim, judge in self.claims.items()
        ]
        judged += [
            (claim, ", ".join(self.experiments), compare(evidence))
            for claim, compare in self.comparisons.items()
        ]
        return [
            Row(claim, name, str(finding.verdict), finding.numbers, seeds)
            for claim, name, finding in judged
        ]


@dataclass(frozen=True)
class Row:
    """One line of the table of verdicts."""

    claim: str
    experiment: str
    verdict: str
    numbers: str
    seeds: int


def to_json(rows: Iterable[Row]) -> str:
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False) + "\n"


def to_markdown(figure: Figure, rows: Iterable[Row], command: str) -> str:
    """A page that says what was claimed, what came out, and how to get it again."""
    head = f"# {figure.title}\n\n{figure.source}. Made by `{command}`.\n"
    sections = (
        f"\n## {row.claim}: {row.verdict}\n\n{row.experiment}, {row.seeds} seeds, mean ± standard "
        f"deviation: {row.numbers}\n"
        for row in rows
    )
    return head + "".join(sections)
