"""Whole networks that adapt, one per task (MAML): autograd of one task at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.models.heads.form import NetworkForm, TaskOracle
from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.points import Inner, Linear, Oracle, Outer, Start
from bilevel.problem.model import Model
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Rows, Source


@dataclass(frozen=True)
class NetworkModel(Model):
    """Whole networks, one task at a time."""

    form: NetworkForm

    def oracle(self, problem: Any, seed: int) -> NetworkOracle:
        return NetworkOracle(self.form, problem, seed)

    def adapting(self, tasks: Source, x0: Any, y0: Any) -> NetworkOracle:
        """For tasks to adapt to, without derivatives by x."""
        # The outer loss is not needed, and a user's own pictures have no labels for it.
        inner = self.form.inner
        return NetworkOracle(self.form, Problem(inner, inner, x0, y0, tasks, tasks))


class NetworkOracle(TaskOracle):
    """The derivatives of `NetworkForm`: g is a sum over tasks, f a mean, and x only the start.

    The memory is that of one task's graph, whatever the number of tasks.

    Args:
        form: the losses.
        problem: the same as a problem.
    """

    def __init__(self, form: NetworkForm, problem: Problem, seed: int = 0) -> None:
        self.form, self._data = form, problem.inner_data
        self._one = AutogradOracle(problem, seed)
        self.x_size, self.y_size = self._one.x_size, self._one.y_size
        self.inner_rows, self.outer_rows = self._one.inner_rows, self._one.outer_rows
        self.seed, self.dtype, self.device = seed, problem.dtype, problem.device

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _NetworksOuter([self._one.outer(x, y, i) for i in self._each(rows)], x, y)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return self.linearize(x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return _NetworksPoint(self._one, x, y, self._each(rows))

    def start(self, x: Tensor, y: Tensor, rows: Rows = None) -> Start:
        return self._one.start(x, y)

    def query_logits(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        form, data = self.form, self._data
        assert data is not None
        tasks = torch.arange(len(data)) if rows is None else rows
        with torch.no_grad():
            own = y.view(form.heads, -1)[tasks % form.heads]
            return form.logits(own, data.rows(tasks)[:, form.shape.support :])

    def _each(self, rows: Rows) -> list[Tensor]:
        """The tasks, one at a time."""
        everyone = torch.arange(self.inner_rows or 0) if rows is None else rows
        return list(torch.split(everyone, 1))


class _NetworksOuter(Outer):
    def __init__(self, tasks: Sequence[Outer], x: Tensor, y: Tensor) -> None:
        self._tasks, self._x, self._y = tasks, x, y

    def value(self) -> Tensor:
        return torch.stack([task.value() for task in self._tasks]).mean()

    def gradient(self) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(self._y)
        for task in self._tasks:
            total.add_(task.gradient()[1])
        return torch.zeros_like(self._x), total.div_(len(self._tasks))


class _NetworksPoint(Linear):
    """g at a point: each task's graph is made when it is needed, and then forgotten."""

    def __init__(self, one: Oracle, x: Tensor, y: Tensor, tasks: list[Tensor]) -> None:
        self._one, self._x, self._y, self._tasks = one, x, y, tasks

    def value(self) -> Tensor:
        points = (self._one.inner(self._x, self._y, i) for i in self._tasks)
        return torch.stack([point.value() for point in points]).sum()

    def gradient(self) -> Tensor:
        return self.value_and_gradient()[1]

    def value_and_gradient(self) -> tuple[Tensor, Tensor]:
        value, gradient = self._y.new_zeros(()), torch.zeros_like(self._y)
        for i in self._tasks:
            of_task = self._one.inner(self._x, self._y, i).value_and_gradient()
            value.add_(of_task[0])
            gradient.add_(of_task[1])
        return value, gradient

    def gradient_x(self) -> Tensor:
        return torch.zeros_like(self._x)

    def hvp(self, v: Tensor) -> Tensor:
        total = torch.zeros_like(self._y)
        for i in self._tasks:
            total.add_(self._one.linearize(self._x, self._y, i).hvp(v))
        return total

    def cross(self, v: Tensor) -> Tensor:
        return torch.zeros_like(self._x)
