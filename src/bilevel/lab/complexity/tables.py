"""The two tables: what was measured beside what the paper has, a line for each of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bilevel.lab.complexity.family import descent_order
from bilevel.lab.complexity.fits import Fit, Trials, fits
from bilevel.lab.complexity.methods import Method
from bilevel.lab.complexity.studies import Study
from bilevel.lab.experiments.rule import Interval
from bilevel.lab.quantities import COUNTS
from bilevel.lab.text_table import aligned


@dataclass(frozen=True)
class Order:
    """O(κ^p ε^−q), with logarithms left out.

    Args:
        kappa: p; None where the paper has "poly(κ)".
        epsilon: q.

    Example:
        >>> print(Order(3.5, 1), Order(None, 2.5))
        κ^3.5 ε⁻¹ poly(κ) ε^−2.5
    """

    kappa: float | None
    epsilon: float

    def times(self, kappa: float = 0.0, epsilon: float = 0.0) -> Order:
        """With more powers of κ and of 1/ε."""
        assert self.kappa is not None
        return Order(self.kappa + kappa, self.epsilon + epsilon)

    def __str__(self) -> str:
        of_kappa = "poly(κ)" if self.kappa is None else f"κ{_power(self.kappa)}"
        return f"{of_kappa} ε{_power(-self.epsilon)}"


def _power(number: float) -> str:
    if number == int(number):
        return str(int(number)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"^{number:.3g}".replace("-", "−")


Orders = dict[str, Order]  # by count


def _orders(*pairs: tuple[float | None, float]) -> Orders:
    return {count: Order(*pair) for count, pair in zip(COUNTS, pairs, strict=True)}


# Tables 1 and 2 as printed; HV of stocBiO is κ⁷ by the proof's own choices (docs/errata.md, 2).
PRINTED: dict[str, Orders] = {
    "aid-bio": _orders((3, 1), (4, 1), (3, 1), (3.5, 1)),
    "itd-bio": _orders((3, 1), (4, 1), (4, 1), (4, 1)),
    "aid-bio-increasing": _orders((4, 1), (5, 1.25), (4, 1), (4.5, 1)),
    "stocbio": _orders((5, 2), (9, 2), (5, 2), (6, 2)),
    "bsa": _orders((6, 2), (9, 3), (6, 2), (6, 2)),
    "ttsa": _orders((None, 2.5), (None, 2.5), (None, 2.5), (None, 2.5)),
}

# The same theorems with L_Φ of order κ², as it is for ρ = τ = 0. S is then κ³/ε for κ⁵/ε, because
# the hypergradient feels ‖y − y*‖ with κ for κ². HV by the proof, not as printed.
WITHOUT_BENDING: dict[str, Orders] = {
    "aid-bio": _orders((2, 1), (3, 1), (2, 1), (2.5, 1)),
    "itd-bio": _orders((2, 1), (3, 1), (3, 1), (3, 1)),
    "stocbio": _orders((4, 2), (6, 2), (4, 2), (6, 2)),
}


def theorem(study: Study, method: str) -> Orders | None:
    """What the theorems give for the family of a study; None where there is none to adapt."""
    return (PRINTED if study.steepness == 3 else WITHOUT_BENDING).get(method)


def family_orders(study: Study, method: str) -> Orders | None:
    """What must be measured if the method moves x as exact gradient descent does.

    The steps K are known from `descent_order`, and the settings say what a step costs. For
    stocBiO the rows b that keep the noise below ε are taken as κ²/ε.
    """
    a = descent_order()
    K = Order(study.steepness + 2 * a - 2, a)
    assert K.kappa is not None
    Kb = K.times(2, 1)
    rows = {
        "aid-bio": (K, K.times(1), K, K.times(0.5)),
        "itd-bio": (K, K.times(1), K.times(1), K.times(1)),
        "aid-bio-increasing": (K, K.times(1 + K.kappa / 4, a / 4), K, K.times(0.5)),
        "stocbio": (Kb, Kb.times(2), Kb, Kb.times(2)),
    }
    return dict(zip(COUNTS, rows[method], strict=True)) if method in rows else None


NEAR = 0.3  # what the family's tail and the short range of κ and ε can do to a power
_WIDEST = 1.0  # orders that differ by one must be told apart, or the measurement says nothing


class Standing(StrEnum):
    """Where a measured power stands."""

    ATTAINED = "attains"
    WITHIN = "within"
    NOT_ABOVE = "not above"
    ABOVE = "above"
    UNDECIDED = "undecided against"


def standing(measured: Interval, order: float) -> Standing:
    """Attained if the whole interval is near the order; within or above if it does not come near.

    An interval that reaches from below to near the order is "not above". One that holds the order
    and is wider than 1, as that of a single seed is, leaves it undecided.

    Example:
        >>> [str(standing(Interval(m, m - 0.2, m + 0.2), 3.0)) for m in (2.0, 2.6, 3.0, 3.2, 3.6)]
        ['within', 'not above', 'attains', 'attains', 'above']
        >>> str(standing(Interval(3.0, -8.0, 17.0), 3.0))
        'undecided against'
    """
    if measured.low > order + NEAR:
        return Standing.ABOVE
    if measured.high < order - NEAR:
        return Standing.WITHIN
    if not measured.high - measured.low <= _WIDEST:
        return Standing.UNDECIDED
    return Standing.ATTAINED if measured.low >= order - NEAR else Standing.NOT_ABOVE


def compare(fit: Fit, order: Order, name: str) -> str:
    """A verdict in words on both powers, e.g. "attains the paper's order"."""
    in_epsilon = standing(fit.epsilon, order.epsilon)
    if order.kappa is None:
        return f"{in_epsilon} {name} in ε; in κ the paper gives no power"
    in_kappa = standing(fit.kappa, order.kappa)
    if in_kappa is in_epsilon:
        return f"{in_kappa} {name}"
    return f"{in_kappa} {name} in κ, {in_epsilon} it in ε"


def verdict(fit: Fit | None, printed: Order | None, theorem: Order | None) -> str:
    """What a cell of the table says.

    Args:
        fit: what was measured.
        printed: the paper's order.
        theorem: what its theorem gives for the family, if that is less than what is printed.
    """
    if fit is None:
        return "not measured: too few runs reached ε"
    if printed is None:
        return "no theorem covers it"
    said = compare(fit, printed, "the paper's order")
    if theorem is not None and theorem != printed:
        said += "; " + compare(fit, theorem, "the one for ρ = τ = 0")
    if fit.missing:
        said += f"; {fit.missing} of {fit.missing + fit.measured} did not reach ε and are left out"
    return said


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
