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

    Example:
        >>> from bilevel.few_shot import Accuracy
        >>> print(Accuracy(mean=0.5, interval=0.01, tasks=600))
        50.00 ± 1.00 % over 600 tasks
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

    Example:
        >>> import numpy as np, torch, bilevel
        >>> from bilevel.datasets import Images
        >>> from bilevel.few_shot import Tasks, accuracy, few_shot_problem
        >>> labels = np.arange(30) // 10  # pictures of one brightness for each class
        >>> pixels = np.broadcast_to((labels * 100)[:, None, None, None], (30, 2, 2, 1))
        >>> images = Images(pixels.astype(np.uint8), labels, ("dark", "grey", "light"))
        >>> tasks = Tasks(images, ways=2, shots=2, queries=2, count=4, dtype=torch.float64)
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 4)).double()
        >>> problem = few_shot_problem(tasks, net, batch=2)
        >>> adapts = bilevel.algorithms.ITDBiO(inner_steps=50, inner_lr=0.5)
        >>> accuracy(problem, adapts, problem.x0, tasks=4).mean
        1.0
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
