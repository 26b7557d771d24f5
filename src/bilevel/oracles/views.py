"""What an outer step sees of a problem: all of it, or the tasks of that step.

A problem of tasks (`Problem(tasks=Tasks(batch=B))`) shows rows kB, ..., kB + B − 1 to both losses
at step k, and starts again from the first row after the last: the paper's sampling of tasks. Any
other problem looks the same at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bilevel.arguments import valid_seed
from bilevel.oracles.counting import CountingOracle
from bilevel.oracles.make import make
from bilevel.oracles.points import Forwarding, Oracle
from bilevel.oracles.prices import Counts, Tally
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Rows


class View(NamedTuple):
    """The problem at outer step `step`.

    Args:
        step: k.
        whole: all that the step sees.
        parts: the same in chunks, if the problem asks for them; otherwise only the whole.

    Example:
        >>> from bilevel.oracles import View, make
        >>> from bilevel.problem.examples import halves
        >>> view = View.of(make(halves()), step=3)
        >>> view.step, view.parts == (view.whole,)
        (3, True)
    """

    step: int
    whole: Oracle
    parts: Sequence[Oracle]

    @staticmethod
    def of(oracle: Oracle, step: int = 0) -> View:
        """The whole of an oracle."""
        return View(step, oracle, (oracle,))


class Views:
    """The views of all outer steps, counted together; `watch` is called before each call.

    Example:
        >>> from bilevel.oracles import Views
        >>> from bilevel.problem.examples import halves
        >>> views = Views(problem := halves())
        >>> gradient = views.at(0).whole.inner(problem.x0, problem.y0).gradient()
        >>> views.counts.gc_g
        1
    """

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        counts: Counts | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        valid_seed("seed", seed)
        self.oracle, self._tasks, self._watch = make(problem, seed), problem.tasks, watch
        self.count_from(counts)

    def count_from(self, counts: Counts | None) -> None:
        """Restart the count from here."""
        # One tally for all views: the chunks of a step add to the same count.
        self._tally = Tally(counts, self._watch)
        self._all = CountingOracle(self.oracle, self._tally)

    @property
    def counts(self) -> Counts:
        """What all views have computed so far."""
        return self._tally.counts

    def at(self, step: int) -> View:
        """What outer step `step` sees."""
        if self._tasks is None:
            return View.of(self._all, step)
        size, rows = self._tasks.batch, self.oracle.inner_rows
        assert rows is not None
        # Determined by the step, without a state: a resumed run sees the same tasks.
        chosen = torch.arange(step * size, (step + 1) * size) % rows
        whole = self._shown(chosen)
        if self._tasks.chunk is None:
            return View.of(whole, step)
        # Chunks bound the memory of a step; `estimate_in_parts` averages their estimates.
        return View(step, whole, [self._shown(r) for r in torch.split(chosen, self._tasks.chunk)])

    def bare(self, step: int) -> Oracle:
        """The whole of it, uncounted: for evaluations that are not part of the method."""
        whole = self.at(step).whole
        inside = whole.oracle if isinstance(whole, CountingOracle) else whole
        return inside if self._watch is None else CountingOracle(inside, Tally(watch=self._watch))

    def _shown(self, rows: Tensor) -> Oracle:
        return CountingOracle(SharedBatch(self.oracle, rows), self._tally)


class SharedBatch(Forwarding):
    """Any oracle, restricted to these rows.

    Example:
        >>> import torch
        >>> from bilevel.oracles import SharedBatch, make
        >>> from bilevel.problem.examples import means
        >>> oracle, x, y = make(means()), torch.ones(2).double(), torch.zeros(2).double()
        >>> some = SharedBatch(oracle, rows := torch.tensor([0, 3]))
        >>> bool((some.inner(x, y).gradient() == oracle.inner(x, y, rows).gradient()).all())
        True
    """

    def __init__(self, oracle: Oracle, rows: Tensor) -> None:
        super().__init__(oracle)
        # Methods draw row numbers within the batch; `rows` below turns them into the oracle's own.
        self._rows = rows
        self.inner_rows = self.outer_rows = len(rows)

    def rows(self, rows: Rows) -> Rows:
        return self._rows if rows is None else self._rows[rows]
