"""Few-shot learning: an embedding that is learned from many tasks, and tested on new classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from bilevel.algorithms import Algorithm
from bilevel.apps.few_shot import FourBlocks, Tasks, accuracy, few_shot_problem
from bilevel.apps.few_shot.learners import LearnedHead, Learner, RandomHead, WholeNetwork, ZeroHead
from bilevel.apps.few_shot.tasks import ENDLESS
from bilevel.arguments import Count, NonNegative
from bilevel.datasets import ImageClasses, Images, load_images
from bilevel.errors import quoted
from bilevel.lab.tasks.base import Instance, Measure, Task
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables

_LEARNERS: dict[str, Callable[[float, int], Learner]] = {  # from the ridge and a seed
    "zero-head": lambda ridge, seed: ZeroHead(ridge),
    "random-head": RandomHead,
    "learned-head": LearnedHead,
    "whole-network": lambda ridge, seed: WholeNetwork(seed),
}


@dataclass(frozen=True, kw_only=True)
class FewShot(Task):
    """f = mean query loss, g = support loss plus a ridge: see `bilevel.few_shot`.

    Measured is the accuracy on the query images of tasks from the training classes and from the
    test classes, after adaptation by the algorithm's own inner solver.

    Args:
        ways, shots, queries: of a task.
        batch: the tasks of an outer step.
        pool: how many tasks there are; None draws fresh ones without end. With a pool, each task
            keeps its head from one visit to the next if the algorithm uses warm starts.
        learner: what adapts: "zero-head", "random-head", "learned-head" or "whole-network".
        ridge: of the heads.
        filters: of the four-block network; None takes the field's number for the image size.
        measured_tasks: how many tasks of each part are measured.

    Reference: Ji, Yang & Liang, ICML 2021, Section 5.
    """

    kind: ClassVar[str] = "few-shot"
    has_validation: ClassVar[bool] = False

    ways: Count = 5
    shots: Count = 5
    queries: Count = 5
    batch: Count = 32
    pool: Count | None = None
    learner: str = "zero-head"
    ridge: NonNegative = 0.01
    filters: Count | None = None
    measured_tasks: Count = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learner not in _LEARNERS:
            raise ValueError(
                f"learner must be one of {', '.join(_LEARNERS)}, got {quoted(self.learner)}"
            )

    def load(self, data: str) -> ImageClasses:
        return load_images(data)

    def build(self, data: ImageClasses, seed: int) -> Instance:
        parts = {"train": data.train, "test": data.test}
        measured = {
            part: self._problem(images, seed, self.measured_tasks, stream=1)
            for part, images in parts.items()
        }

        def measure_adapted(algorithm: Algorithm, step: int) -> Measure:
            return lambda x, y: {
                f"{part}_accuracy": accuracy(
                    problem, algorithm, x, self.measured_tasks, step=step
                ).mean
                for part, problem in measured.items()
            }

        problem = self._problem(data.train, seed, self.pool or ENDLESS, stream=0)
        return Instance(problem, _nothing, measure_adapted)

    def _problem(self, images: Images, seed: int, count: int, stream: int) -> Problem:
        tasks = Tasks(
            images, self.ways, self.shots, self.queries, count=count, seed=2 * seed + stream
        )
        channels, size, _ = tasks.image_shape
        network = FourBlocks(channels, size, self.filters, seed)
        learner = _LEARNERS[self.learner](self.ridge, seed)
        return few_shot_problem(tasks, network, learner, batch=min(self.batch, count))


def _nothing(x: Variables, y: Variables) -> dict[str, float]:
    return {}
