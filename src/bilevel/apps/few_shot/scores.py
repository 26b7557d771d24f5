"""How well a model adapts: the accuracy on the query images of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bilevel.algorithms import Algorithm
from bilevel.apps.few_shot.problem import FewShotProblem
from bilevel.arguments import positive_integer
from bilevel.errors import quoted
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.record import Record

_TOGETHER = 8  # tasks to adapt to at a time


@dataclass(frozen=True)
class Accuracy(Record):
    """A mean over tasks.

    Args:
        mean: the mean accuracy.
        interval: half the width of its 95 % interval, 1.96 standard errors over tasks.
        tasks: how many.
    """

    mean: float
    interval: float
    tasks: int

    def __str__(self) -> str:
        return f"{percent(self.mean, self.interval)} over {self.tasks} tasks"


def percent(mean: float, interval: float) -> str:
    """A share and half the width of its interval, in percent."""
    return f"{100 * mean:.2f} ± {100 * interval:.2f} %"


def accuracy(
    problem: Problem,
    algorithm: Algorithm,
    x: Variables,
    tasks: int,
    *,
    step: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> Accuracy:
    """The accuracy on the query images of a problem's first tasks, after adapting to each.

    Args:
        problem: of `few_shot_problem`, on the classes to test with.
        algorithm: the one used in training, whose inner solver adapts.
        x: as in `result.x`, or flat as in `result.state.x`.
        tasks: how many.
        step: the outer step that x comes from, for inner steps that depend on it.
        advance: called with the number of tasks done.
    """
    if not isinstance(problem, FewShotProblem):
        raise ValueError(
            f"accuracy needs a problem made by few_shot_problem, got {quoted(problem)}"
        )
    made, shape = problem.formulation, problem.episodes.shape
    rows = torch.arange(positive_integer("tasks", tasks))
    batches = torch.split(rows, min(_TOGETHER, made.form.heads))
    flat = x if isinstance(x, Tensor) else problem.x_structure.flatten(x)
    shares: list[float] = []
    for logits in made.adapted(problem.episodes, algorithm, flat, step, batches):
        shares += (logits.argmax(2) == shape.query_labels).double().mean(1).tolist()
        advance(len(shares))
    error = float(np.std(shares, ddof=1)) / len(shares) ** 0.5 if len(shares) > 1 else float("nan")
    return Accuracy(float(np.mean(shares)), 1.96 * error, len(shares))
