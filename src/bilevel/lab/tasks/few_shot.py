"""Few-shot learning: an embedding that is learned from many tasks, and tested on new classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bilevel.algorithms import Algorithm
from bilevel.apps.few_shot import FourBlocks, Tasks, accuracy, few_shot_problem
from bilevel.apps.few_shot.learners import LearnedHead, Learner, RandomHead, WholeNetwork, ZeroHead
from bilevel.apps.few_shot.tasks import ENDLESS
from bilevel.arguments import non_negative, positive_integer
from bilevel.datasets import ImageClasses, Images, load_images
from bilevel.errors import quoted
from bilevel.lab.tasks.base import Instance, Measure, Task
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables

_LEARNERS = ("zero-head", "random-head", "learned-head", "whole-network")


@dataclass(frozen=True, kw_only=True)
class FewShot(Task):
    """f = mean query loss, g = support loss plus a ridge: see `bilevel.few_shot`.

    Measured is the accuracy on the query images of tasks from the training classes and from the
    test classes, after adaptation by the algorithm's own inner solver.

    Args:
        ways, shots, queries: of a task.
        batch: the tasks of an outer step.
        pool: how many tasks there are; None draws fresh ones for ever. With a pool, each task
            keeps its head from one visit to the next, where the algorithm starts warm.
        learner: what adapts: "zero-head", "random-head", "learned-head" or "whole-network".
        ridge: of the heads.
        filters: of the four-block network; None takes the field's number for the image size.
        measured_tasks: how many tasks of each part are measured.

    Reference: Ji, Yang & Liang, ICML 2021, Section 5.
    """

    kind: ClassVar[str] = "few-shot"
    has_validation: ClassVar[bool] = False

    ways: int = 5
    shots: int = 5
    queries: int = 5
    batch: int = 32
    pool: int | None = None
    learner: str = "zero-head"
    ridge: float = 0.01
    filters: int | None = None
    measured_tasks: int = 100

    def __post_init__(self) -> None:
        for name in ("ways", "shots", "queries", "batch", "measured_tasks"):
            positive_integer(name, getattr(self, name))
        for name in ("pool", "filters"):
            if getattr(self, name) is not None:
                positive_integer(name, getattr(self, name))
        non_negative("ridge", self.ridge)
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
        return few_shot_problem(tasks, network, self._learner(seed), batch=min(self.batch, count))

    def _learner(self, seed: int) -> Learner:
        made: dict[str, Learner] = {
            "zero-head": ZeroHead(self.ridge),
            "random-head": RandomHead(self.ridge, seed),
            "learned-head": LearnedHead(self.ridge, seed),
            "whole-network": WholeNetwork(seed),
        }
        return made[self.learner]


def _nothing(x: Variables, y: Variables) -> dict[str, float]:
    return {}
