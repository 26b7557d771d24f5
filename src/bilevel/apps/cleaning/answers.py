"""What is found about the labels of a table, be they classes or numbers."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.apps.cleaning.columns import Array, Column
from bilevel.apps.cleaning.counting import Interval


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What is thought of each row's label.

    Args:
        columns: what each column was taken for.
        wrong: P(the label is wrong), of a number that it is grossly so; 0 for trusted rows.
        flagged: the rows with the greatest expected F1.
        trusted: the rows that were given as right.
        count: how many labels are wrong: the least, the expected and the largest number (90 %).
        precision: the same of the share of the flagged labels that is wrong; None where too few
            rows were checked to tell.
        checked: trusted rows, how many of them models without their labels got right (of numbers:
            are inside of their interval), and the 90 % interval of that share; None with fewer
            than 20.
        judged: the rows that have a label; None: all.
        blind: the labels alone cannot tell how many are wrong.
    """

    columns: list[Column]
    wrong: Array
    flagged: Array
    trusted: Array
    count: Interval
    precision: Interval | None
    checked: tuple[int, int, float, float] | None
    judged: Array | None = None
    blind: bool = False

    @property
    def doubtful(self) -> Array:
        """The rows that are judged: those with a label that nobody vouches for."""
        return ~self.trusted if self.judged is None else self.judged & ~self.trusted
