"""The rows of one outer step, shown to both losses: the paper's sampling of tasks."""

from __future__ import annotations

import torch
from torch import Tensor

from bilevel.oracles.base import Linearization, Oracle
from bilevel.problem.sources import Rows


def at_step(oracle: Oracle, step: int) -> Oracle:
    """The oracle as outer step `step` sees it.

    A problem with a shared batch of B rows shows rows kB, ..., kB + B − 1 at step k, and begins
    again after the last row. Any other oracle is the same at each step.
    """
    size, rows = oracle.shared_batch, oracle.inner_rows
    if size is None or rows is None:
        return oracle
    return SharedBatch(oracle, torch.arange(step * size, (step + 1) * size) % rows)


def parts_of_step(oracle: Oracle, step: int) -> list[Oracle]:
    """The same in parts of at most `oracle.chunk` rows, if the problem is worked on in parts."""
    whole = at_step(oracle, step)
    if not isinstance(whole, SharedBatch) or oracle.chunk is None:
        return [whole]
    return [SharedBatch(oracle, rows) for rows in torch.split(whole.rows, oracle.chunk)]


class SharedBatch(Oracle):
    """Any oracle, where all rows are these ones."""

    def __init__(self, oracle: Oracle, rows: Tensor) -> None:
        self.oracle, self.rows = oracle, rows
        self.x_size, self.y_size = oracle.x_size, oracle.y_size
        self.inner_rows = self.outer_rows = len(rows)
        self.shared_batch = self.chunk = None
        self.seed, self.dtype, self.device = oracle.seed, oracle.dtype, oracle.device

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.outer_value(x, y, self._choose(rows))

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.inner_value(x, y, self._choose(rows))

    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        return self.oracle.outer_gradient(x, y, self._choose(rows))

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.inner_gradient(x, y, self._choose(rows))

    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        return self.oracle.inner_value_and_gradient(x, y, self._choose(rows))

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        return self.oracle.linearize(x, y, self._choose(rows))

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.pull(x, covector, self._choose(rows))

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        return self.oracle.start(x, y)

    def pull_start(self, x: Tensor, r: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.pull_start(x, r, self._choose(rows))

    def _choose(self, rows: Rows) -> Tensor:
        return self.rows if rows is None else self.rows[rows]
