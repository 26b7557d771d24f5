"""Verdicts on a paper's claims: what a figure consists of, how it is judged and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bilevel.lab.experiments.rule import ERROR, Gain, Verdict, decide, seeds_needed, weakest

if TYPE_CHECKING:  # the help of `bilevel reproduce` needs the figures' names alone
    from bilevel.lab.curves import Curves

LATE = 0.01  # of the budget: a run's last step ends a little before it, or a little after


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
        """Only what was measured in time: a step that ends well after the budget does not count.

        And only seeds that every method has: judges compare runs of the same seed.
        """
        end = (1 + LATE) * seconds
        common = set.intersection(*({run.seed for run in runs} for runs in curves.values()))
        kept = {
            label: [
                run.within(end)
                for run in sorted(runs, key=lambda run: run.seed)
                if run.seed in common
            ]
            for label, runs in curves.items()
        }
        return Evidence(kept, seconds)

    @property
    def seeds(self) -> int:
        return min(map(len, self.curves.values()))


@dataclass(frozen=True)
class Finding:
    """What a judge compared, and more numbers in a sentence."""

    gains: tuple[Gain, ...]
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
        """A row for each claim and experiment that has been run.

        The error is shared by all claims of the figure, also those that have not been judged yet.
        """
        seeds = min(part.seeds for part in evidence.values())
        judged = [
            (claim, name, judge(evidence[name]))
            for name in self.experiments
            if name in evidence
            for claim, judge in self.claims.items()
        ]
        if len(evidence) == len(self.experiments):
            judged += [
                (claim, ", ".join(self.experiments), compare(evidence))
                for claim, compare in self.comparisons.items()
            ]
        error = ERROR / (len(self.experiments) * len(self.claims) + len(self.comparisons))
        return [Row.of(claim, name, finding, error, seeds) for claim, name, finding in judged]


@dataclass(frozen=True)
class Row:
    """One line of the table of verdicts.

    Args:
        claim: of the paper.
        experiment: what it was judged on.
        verdict: confirmed, contradicted or undecided.
        effect: each comparison with its interval.
        numbers: what else was measured.
        seeds: how many.
        weakest: the comparison that the verdict hangs on, in short.
        seeds_needed: how many would decide an open claim if means and spreads stayed as they are.
    """

    claim: str
    experiment: str
    verdict: str
    effect: str
    numbers: str
    seeds: int
    weakest: str = ""
    seeds_needed: int | None = None

    @staticmethod
    def of(claim: str, experiment: str, finding: Finding, error: float, seeds: int) -> Row:
        """What the rule says of a finding, at this probability of an error."""
        gains = finding.gains
        effect = "; ".join(gain.text(error) for gain in gains)
        verdict, hangs = decide(gains, error), weakest(gains, error)
        more = seeds_needed(gains, error) if verdict is Verdict.UNDECIDED else None
        return Row(claim, experiment, str(verdict), effect, finding.numbers, seeds, hangs, more)


def to_markdown(figure: Figure, rows: Iterable[Row], command: str) -> str:
    """A page that says what was claimed, what came out, and how to get it again."""
    head = f"# {figure.title}\n\n{figure.source}. Made by `{command}`.\n"
    sections = (
        f"\n## {row.claim}: {row.verdict}\n\n{row.experiment}, {row.seeds} seeds. Gains (above 0, "
        f"or × above 1, where the claim is right):\n\n{bullets(row.effect)}\n"
        f"{bullets(row.numbers)}"
        for row in rows
    )
    return head + "".join(sections)


def bullets(text: str) -> str:
    """What is joined by semicolons, as a list."""
    return "".join(f"- {part}\n" for part in text.split("; "))
