"""The two tables: what was measured beside what the paper has, a line for each of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bilevel.lab.complexity.fits import Fit, Trials, fits
from bilevel.lab.complexity.measure import COUNTS
from bilevel.lab.complexity.methods import Method
from bilevel.lab.complexity.orders import PRINTED, Order, family_orders, theorem
from bilevel.lab.complexity.studies import Study
from bilevel.lab.complexity.verdicts import verdict

NAMES = {"gc_f": "Gc(f)", "gc_g": "Gc(g)", "jv": "JV", "hv": "HV"}
COLUMNS = (
    "method",
    "count",
    "paper",
    "theorem here",
    "family",
    "power of κ",
    "power of 1/ε",
    "verdict",
)


@dataclass(frozen=True)
class Line:
    """A cell of the paper's table.

    Args:
        method: the row.
        count: the column.
        printed: the paper's order.
        theorem: what its theorem gives for this family.
        family: what exact gradient descent must give.
        fit: what was measured.
    """

    method: Method
    count: str
    printed: Order | None
    theorem: Order | None
    family: Order | None
    fit: Fit | None

    @property
    def verdict(self) -> str:
        return verdict(self.fit, self.printed, self.theorem)

    @property
    def texts(self) -> list[str]:
        """In the order of `COLUMNS`."""
        powers = ("–", "–") if self.fit is None else (str(self.fit.kappa), str(self.fit.epsilon))
        orders = (self.printed, self.theorem, self.family)
        return [
            self.method.title,
            NAMES[self.count],
            *("–" if order is None else str(order) for order in orders),
            *powers,
            self.verdict,
        ]


def lines(study: Study, trials: Trials) -> list[Line]:
    """All lines of a study."""
    found = fits(study, trials)
    return [
        Line(
            method,
            count,
            PRINTED.get(method.name, {}).get(count),
            (theorem(study, method.name) or {}).get(count),
            (family_orders(study, method.name) or {}).get(count),
            found[method.name, count],
        )
        for method in study.methods
        for count in COUNTS
    ]


def heading(study: Study) -> str:
    return f"Table {study.table}: {study.title}"


def as_text(study: Study, lines: Sequence[Line]) -> str:
    """For a terminal; what does not fit is in the page."""
    rows = [[*COLUMNS[:3], *COLUMNS[5:]], *([*x[:3], *x[5:]] for x in (y.texts for y in lines))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    body = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join([heading(study), *body])


def as_markdown(study: Study, lines: Sequence[Line]) -> str:
    """For docs/complexity.md."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(line.texts for line in lines)]
    body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([f"### {heading(study)}", "", *body, ""])
