"""Counts of what the paper prices: gradients, cross products, Hessian-vector products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from torch import Tensor

from bilevel.oracles.base import Batched, Implicit, Linearization, Oracle, Step, Sweep
from bilevel.problem.sources import Rows
from bilevel.record import Record


@dataclass(frozen=True)
class Counts(Record):
    """How often each derivative was asked for, in calls and in samples (see `CountingOracle`)."""

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


class CountingOracle(Oracle):
    """Any oracle, with a tally.

    The convention, after Definition 2 of the paper and the sums in its proofs:

    - `gc_f` counts partial gradients ∇x f and ∇y f: a call that gives both counts 2;
    - `gc_g` counts gradients ∇y g;
    - `jv` counts cross products ∇x∇y g · v, `hv` Hessian-vector products ∇²y g · v. A
      linearisation by itself is free: only the products made with it count;
    - values of f and g are free, and so are the Hessian's diagonal and approximate inverse;
    - where a shared batch is worked on in chunks, each chunk's calls count;
    - the same names with `_samples` count each call as often as its batch has rows (once, for
      a loss without data).
    """

    def __init__(self, oracle: Oracle, start: Counts | None = None) -> None:
        self.oracle = oracle
        self._tally: dict[str, int] = dict(start or Counts())
        self.x_size, self.y_size = oracle.x_size, oracle.y_size
        self.inner_rows, self.outer_rows = oracle.inner_rows, oracle.outer_rows
        self.shared_batch, self.chunk = oracle.shared_batch, oracle.chunk
        self.seed, self.dtype, self.device = oracle.seed, oracle.dtype, oracle.device

    @property
    def counts(self) -> Counts:
        """What was asked for so far."""
        return Counts(**self._tally)

    def add(self, what: str, samples: int, calls: int = 1) -> None:
        self._tally[what] += calls
        self._tally[f"{what}_samples"] += calls * samples

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.outer_value(x, y, rows)

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.inner_value(x, y, rows)

    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        self.add("gc_f", _samples(rows, self.outer_rows), calls=2)
        return self.oracle.outer_gradient(x, y, rows)

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        self.add("gc_g", _samples(rows, self.inner_rows))
        return self.oracle.inner_gradient(x, y, rows)

    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        self.add("gc_g", _samples(rows, self.inner_rows))
        return self.oracle.inner_value_and_gradient(x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        n = _samples(rows, self.inner_rows)
        return _CountingLinearization(self, self.oracle.linearize(x, y, rows), n)

    def descend(self, x: Tensor, y: Tensor, steps: Sequence[Step]) -> Tensor:
        for step in steps:
            self.add("gc_g", _samples(step.rows, self.inner_rows))
        return self.oracle.descend(x, y, steps)

    def trace(self, x: Tensor, y: Tensor, steps: Sequence[Step]) -> Tensor:
        for step in steps:
            self.add("gc_g", _samples(step.rows, self.inner_rows))
        return self.oracle.trace(x, y, steps)

    def retrace(self, x: Tensor, path: Tensor, steps: Sequence[Step], sweep: Sweep) -> Sweep:
        for step in steps:
            self.add("hv", _samples(step.rows, self.inner_rows))
            self.add("jv", _samples(step.rows, self.inner_rows))
        return self.oracle.retrace(x, path, steps, sweep)

    def contract(
        self, x: Tensor, y: Tensor, r: Tensor, batches: Sequence[Rows], lr: float
    ) -> tuple[Tensor, Tensor]:
        for rows in batches:
            self.add("hv", _samples(rows, self.inner_rows))
        return self.oracle.contract(x, y, r, batches, lr)

    def implicit(self, x: Tensor, y: Tensor, drawn: Batched) -> Implicit:
        for step in drawn.steps:
            self.add("gc_g", _samples(step.rows, self.inner_rows))
        self.add("gc_f", _samples(drawn.outer, self.outer_rows), calls=2)
        for rows in drawn.series.batches:
            self.add("hv", _samples(rows, self.inner_rows))
        self.add("jv", _samples(drawn.cross, self.inner_rows))
        return self.oracle.implicit(x, y, drawn)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.pull(x, covector, rows)

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        return self.oracle.start(x, y)

    def pull_start(self, x: Tensor, r: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.pull_start(x, r, rows)


class _CountingLinearization(Linearization):
    def __init__(self, owner: CountingOracle, inner: Linearization, samples: int) -> None:
        self._owner, self._inner, self._samples = owner, inner, samples

    def gradient(self) -> Tensor:
        self._owner.add("gc_g", self._samples)
        return self._inner.gradient()

    def hvp(self, v: Tensor) -> Tensor:
        self._owner.add("hv", self._samples)
        return self._inner.hvp(v)

    def cross(self, v: Tensor) -> Tensor:
        self._owner.add("jv", self._samples)
        return self._inner.cross(v)

    def hvp_and_cross(self, v: Tensor) -> tuple[Tensor, Tensor]:
        self._owner.add("hv", self._samples)
        self._owner.add("jv", self._samples)
        return self._inner.hvp_and_cross(v)

    def diagonal(self) -> Tensor:
        return self._inner.diagonal()

    def approximate_inverse(self) -> Callable[[Tensor], Tensor]:
        return self._inner.approximate_inverse()


def _samples(rows: Rows, available: int | None) -> int:
    if rows is not None:
        return len(rows)
    return 1 if available is None else available
