"""The two tables: what was measured beside what the paper has, a line for each of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bilevel.lab.complexity.fits import Fit, Trials, fits
from bilevel.lab.complexity.methods import Method
from bilevel.lab.complexity.orders import PRINTED, Order, family_orders, theorem
from bilevel.lab.complexity.standings import verdict
from bilevel.lab.complexity.studies import Study
from bilevel.lab.quantities import COUNTS
from bilevel.lab.text_table import aligned

_CELL, _RESULT = ("method", "count", "paper"), ("power of κ", "power of 1/ε", "verdict")
COLUMNS = (*_CELL, "theorem here", "family", *_RESULT)


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
            COUNTS[self.count],
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
    rows = [[*_CELL, *_RESULT], *([*texts[:3], *texts[5:]] for texts in (x.texts for x in lines))]
    return f"{heading(study)}\n{aligned(rows)}"


def as_markdown(study: Study, lines: Sequence[Line]) -> str:
    """For docs/complexity.md."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(line.texts for line in lines)]
    body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([f"### {heading(study)}", "", *body, ""])
