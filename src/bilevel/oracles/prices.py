"""What the paper prices: gradients, cross products and Hessian-vector products; and their count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

from bilevel.record import Record


class Price(NamedTuple):
    """What a call costs, in the paper's letters (Definition 2).

    Example:
        >>> from bilevel.oracles import Price
        >>> Price(gc_f=2) + Price(hv=1)
        Price(gc_f=2, gc_g=0, jv=0, hv=1)
    """

    gc_f: int = 0
    gc_g: int = 0
    jv: int = 0
    hv: int = 0

    def __add__(self, other: Price) -> Price:  # type: ignore[override]
        # A tuple's + would concatenate the two.
        return Price(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def of_f(self) -> Price:
        """The part that falls on the outer loss."""
        return Price(gc_f=self.gc_f)

    @property
    def of_g(self) -> Price:
        """The part that falls on the inner loss."""
        return self._replace(gc_f=0)


@dataclass(frozen=True)
class Cost(Record):
    """What a part or a whole outer step costs in calls; None if chance or a tolerance decides.

    Example:
        >>> Cost(gc_g=10) + Cost(gc_f=2, hv=None, jv=1)
        Cost(gc_f=2, gc_g=10, jv=1, hv=None)
    """

    gc_f: int | None = 0
    gc_g: int | None = 0
    jv: int | None = 0
    hv: int | None = 0

    def __add__(self, other: Cost) -> Cost:
        pairs = ((self[f.name], other[f.name]) for f in fields(self))
        return Cost(*(None if a is None or b is None else a + b for a, b in pairs))

    @property
    def known(self) -> dict[str, int]:
        """What is known beforehand, by name."""
        return {name: calls for name, calls in dict(self).items() if calls is not None}


# Definition 2 counts partial gradients: ∇x f and ∇y f, which come together, are two.
OUTER, GRADIENT, CROSS, HVP = Price(gc_f=2), Price(gc_g=1), Price(jv=1), Price(hv=1)
TRIPLE = OUTER + GRADIENT + HVP + CROSS  # what a step on y, v and x at once asks for


@dataclass(frozen=True)
class Counts(Record):
    """How often each derivative was computed, in calls and in samples.

    The convention follows Definition 2 of the paper and the sums in its proofs:

    - `gc_f` counts partial gradients ∇x f and ∇y f: a call that gives both counts as 2;
    - `gc_g` counts gradients ∇y g, and ∇x g where a method asks for it;
    - `jv` counts cross products ∇x∇y g · v, `hv` Hessian-vector products ∇²y g · v. A
      linearisation by itself is free: only the products made with it count;
    - values of f and g are free, and so are the Hessian's diagonal and approximate inverse;
    - where a shared batch is processed in chunks, each chunk's calls count;
    - the same names with `_samples` count each call once per row of its batch (once, for
      a loss without data).

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> algorithm = bilevel.algorithms.AIDBiO(inner_steps=5, cg_steps=2, outer_lr=0.1)
        >>> counts = bilevel.minimize(means(), algorithm, steps=1).counts  # 50 rows of data
        >>> counts.gc_g, counts.gc_g_samples, counts.gc_f
        (5, 250, 2)
    """

    gc_f: int = 0
    gc_g: int = 0
    jv: int = 0
    hv: int = 0
    gc_f_samples: int = 0
    gc_g_samples: int = 0
    jv_samples: int = 0
    hv_samples: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(**{f.name: self[f.name] - other[f.name] for f in fields(self)})


class Tally:
    """A running count.

    Args:
        start: where it begins.
        watch: called before each call; it may raise, to stop the caller.
    """

    def __init__(
        self, start: Counts | None = None, watch: Callable[[], None] | None = None
    ) -> None:
        given = start or Counts()
        self.watch = watch
        # A list, not a record for each call: counting must not slow down single-sample steps.
        self._numbers = [given[f.name] for f in fields(Counts)]

    @property
    def counts(self) -> Counts:
        """What has been paid so far."""
        return Counts(*self._numbers)

    def look(self) -> None:
        """Called before each call and each plan: a watcher may stop the caller here."""
        if self.watch is not None:
            self.watch()

    def pay(self, bill: Iterable[tuple[Price, int]]) -> None:
        """The one place that counts: each call once, and once for each of its rows."""
        # In the order of the fields of `Counts`: the four of a Price, then the same by samples.
        numbers = self._numbers
        for price, rows in bill:
            for i, calls in enumerate(price):
                numbers[i] += calls
                numbers[i + 4] += calls * rows
