"""Whole networks that adapt, one a task (MAML): automatic differentiation of one task at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.base import Linearization, Oracle
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Rows


class NetworkOracle(Oracle):
    """The derivatives of `NetworkForm`: g is a sum over tasks, f a mean, and x is but the start.

    The memory is that of one task's graph, whatever the number of tasks.

    Args:
        problem: made by `bilevel.few_shot.few_shot_problem`.
    """

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        self._one = AutogradOracle(problem, seed)
        self.x_size, self.y_size = self._one.x_size, self._one.y_size
        self.inner_rows, self.outer_rows = self._one.inner_rows, self._one.outer_rows
        self.shared_batch, self.chunk = problem.shared_batch, problem.chunk
        self.seed, self.dtype, self.device = seed, problem.dtype, problem.device

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return torch.stack([self._one.outer_value(x, y, i) for i in self._each(rows)]).mean()

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return torch.stack([self._one.inner_value(x, y, i) for i in self._each(rows)]).sum()

    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        total, tasks = torch.zeros_like(y), self._each(rows)
        for i in tasks:
            total.add_(self._one.outer_gradient(x, y, i)[1])
        return torch.zeros_like(x), total.div_(len(tasks))

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.inner_value_and_gradient(x, y, rows)[1]

    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        value, gradient = y.new_zeros(()), torch.zeros_like(y)
        for i in self._each(rows):
            of_task = self._one.inner_value_and_gradient(x, y, i)
            value.add_(of_task[0])
            gradient.add_(of_task[1])
        return value, gradient

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        return _NetworkLinearization(self._one, x, y, self._each(rows))

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        return covector

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        return self._one.start(x, y)

    def pull_start(self, x: Tensor, r: Tensor, rows: Rows = None) -> Tensor:
        return self._one.pull_start(x, r)

    def _each(self, rows: Rows) -> list[Tensor]:
        """The tasks, one at a time."""
        everyone = torch.arange(self.inner_rows or 0) if rows is None else rows
        return list(torch.split(everyone, 1))


class _NetworkLinearization(Linearization):
    """Each task's graph is made when a product asks for it, and then forgotten."""

    def __init__(self, one: Oracle, x: Tensor, y: Tensor, tasks: list[Tensor]) -> None:
        self._one, self._x, self._y, self._tasks = one, x, y, tasks

    def gradient(self) -> Tensor:
        return self._sum(lambda around: around.gradient())

    def hvp(self, v: Tensor) -> Tensor:
        return self._sum(lambda around: around.hvp(v))

    def cross(self, v: Tensor) -> Tensor:
        return torch.zeros_like(self._x)

    def diagonal(self) -> Tensor:
        raise NotImplementedError("the Hessian of a network has no cheap diagonal: use CG without")

    def approximate_inverse(self) -> Callable[[Tensor], Tensor]:
        raise NotImplementedError("the Hessian of a network has no cheap inverse: use CG without")

    def _sum(self, product: Callable[[Linearization], Tensor]) -> Tensor:
        total = torch.zeros_like(self._y)
        for i in self._tasks:
            total.add_(product(self._one.linearize(self._x, self._y, i)))
        return total
