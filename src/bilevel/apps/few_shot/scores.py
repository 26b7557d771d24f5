"""How well a model adapts: the accuracy on the query images of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bilevel.algorithms import DoubleLoop
from bilevel.arguments import positive_integer
from bilevel.models.heads.form import HeadForm, NetworkForm
from bilevel.oracles import HeadOracle, NetworkOracle, Oracle, SharedBatch
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.record import Record

_TOGETHER = 8  # tasks that are adapted at a time


@dataclass(frozen=True)
class Accuracy(Record):
    """Over tasks.

    Args:
        mean: the mean accuracy.
        interval: half the width of its 95 % interval, 1.96 standard errors over tasks.
        tasks: how many.
    """

    mean: float
    interval: float
    tasks: int

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.interval:.2f} % over {self.tasks} tasks"


def accuracy(
    problem: Problem,
    algorithm: DoubleLoop,
    x: Variables,
    tasks: int,
    *,
    step: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> Accuracy:
    """Adapt to the first tasks of a problem as the algorithm does, and ask for the query images.

    Args:
        problem: of `few_shot_problem`, on the classes to test with.
        algorithm: what it was trained with: its inner solver adapts.
        x: as in `result.x`, or flat as in `result.state.x`.
        tasks: how many.
        step: the outer step that x comes from, for inner steps that depend on it.
        advance: told how many tasks are done.
    """
    if not isinstance(problem.closed_form, HeadForm | NetworkForm):
        raise ValueError(f"accuracy needs a problem made by few_shot_problem, got {problem!r}")
    positive_integer("tasks", tasks)
    shares: list[float] = []
    flat = x if isinstance(x, Tensor) else problem.x_structure.flatten(x)
    for logits, labels in _adapted(problem, algorithm, flat, tasks, step):
        shares += (logits.argmax(2) == labels).double().mean(1).tolist()
        advance(len(shares))
    error = float(np.std(shares, ddof=1)) / len(shares) ** 0.5 if len(shares) > 1 else float("nan")
    return Accuracy(float(np.mean(shares)), 1.96 * error, len(shares))


def _adapted(
    problem: Problem, algorithm: DoubleLoop, x: Tensor, tasks: int, step: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits and labels of the query images, some tasks at a time."""
    form = problem.closed_form
    oracle = _oracle(problem)
    for rows in torch.split(torch.arange(tasks), min(_TOGETHER, form.heads)):
        seen = SharedBatch(oracle, rows)
        y = algorithm.start().point(seen, x, problem.y0)
        solution = algorithm.inner_solver(step).solve(seen, x, y, seen.streams(0))
        yield _query_logits(problem, oracle, x, solution.y, rows), form.shape.query_labels


def _oracle(problem: Problem) -> Oracle:
    if isinstance(problem.closed_form, HeadForm):
        assert problem.inner_data is not None
        # No graph is kept: nothing is differentiated by x here.
        return HeadOracle(problem.closed_form, problem.inner_data, graph_bytes=0)
    return NetworkOracle(problem)


def _query_logits(problem: Problem, oracle: Oracle, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    form = problem.closed_form
    if isinstance(oracle, HeadOracle):
        return oracle.query_logits(x, y, rows)
    assert isinstance(form, NetworkForm)
    assert problem.inner_data is not None
    images = problem.inner_data.rows(rows)[:, form.shape.support :]
    with torch.no_grad():
        return form.logits(y.view(form.heads, -1)[rows % form.heads], images)
