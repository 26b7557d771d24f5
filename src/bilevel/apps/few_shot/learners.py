"""Which part of a model adapts to a task, where it starts, and how it is queried."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bilevel.algorithms import Algorithm
from bilevel.apps.few_shot.tasks import OneQuery
from bilevel.arguments import Checked, NonNegative, Seed
from bilevel.models.heads.form import HeadForm, NetworkForm, Shape
from bilevel.models.heads.networks import NetworkModel
from bilevel.models.heads.oracle import HeadModel
from bilevel.oracles import SharedBatch
from bilevel.problem.sources import Source, as_source
from bilevel.problem.structure import Structure


@dataclass(frozen=True)
class Model:
    """An embedding with its initial parameters, its number of features, and the tasks' shape."""

    embedding: nn.Module
    parameters: dict[str, Tensor]
    features: int
    shape: Shape

    def random_head(self, seed: int) -> Tensor:
        """(features + 1, ways), uniform, as torch initialises a linear layer."""
        generator = torch.Generator().manual_seed(seed)
        bound = self.features**-0.5
        head = torch.rand(self.features + 1, self.shape.ways, generator=generator)
        return head.mul_(2 * bound).sub_(bound).to(next(iter(self.parameters.values())))


@dataclass(frozen=True)
class Formulation:
    """The losses, and where x and y start; y0 may be a function of x."""

    model: HeadModel | NetworkModel
    x0: dict[str, Any]
    y0: Tensor | Callable[[Any], Tensor]

    @property
    def form(self) -> HeadForm | NetworkForm:
        return self.model.form

    def adapted(
        self, tasks: Source, algorithm: Algorithm, x: Tensor, step: int, batches: Iterable[Tensor]
    ) -> Iterator[Tensor]:
        """The query logits of each batch of tasks, after adapting as the algorithm does."""
        oracle = self.model.adapting(tasks, self.x0, self.y0)
        y0 = self.y0(self.x0) if callable(self.y0) else self.y0
        for rows in batches:
            y = algorithm.adapt(SharedBatch(oracle, rows), x, y0.reshape(-1), step)
            yield oracle.query_logits(x, y, rows)


class Learner(Checked, ABC):
    """What adapts to a task.

    Attributes:
        takes_any_ways: whether tasks may have a different number of classes than in training.
        statistics: what batch normalisation uses.
    """

    takes_any_ways: bool
    statistics: str

    @abstractmethod
    def formulate(self, model: Model, heads: int) -> Formulation:
        """The problem with this many heads in y."""

    @abstractmethod
    def questions(self, support: Tensor, query: Tensor) -> Source:
        """Tasks that cover all query images, in order."""

    @abstractmethod
    def notes(self, queries: int) -> list[str]:
        """What the user should know about the answers for this many images."""


class HeadLearner(Learner):
    """A linear head adapts."""

    statistics = "the statistics of the task's images, support and query together"
    ridge: float

    def questions(self, support: Tensor, query: Tensor) -> Source:
        return OneQuery(support, query)

    def notes(self, queries: int) -> list[str]:
        return []

    def heads(self, model: Model, heads: int, x0: dict[str, Any], y0: Any) -> Formulation:
        """The problem in which x0 is learned along with the embedding."""
        structure, learned = Structure("embedding", model.parameters), bool(x0)
        shared = model.embedding, structure, model.shape, model.features
        form = HeadForm(*shared, self.ridge, heads, learned_start=learned)
        return Formulation(HeadModel(form), {"embedding": model.parameters, **x0}, y0)


@dataclass(frozen=True)
class ZeroHead(HeadLearner):
    """A linear head adapts, from zero: the paper's formulation.

    Args:
        ridge: r; positive, so that the inner problem is strongly convex.

    Example:
        >>> from bilevel.few_shot import ZeroHead
        >>> ZeroHead(ridge=0.1).takes_any_ways  # zero has no number of classes
        True
    """

    takes_any_ways = True
    ridge: NonNegative = 0.01

    def formulate(self, model: Model, heads: int) -> Formulation:
        zeros = torch.zeros_like(model.random_head(0)).repeat(heads, 1, 1)
        return self.heads(model, heads, {}, zeros)


@dataclass(frozen=True)
class SeededHead(HeadLearner):
    """A linear head adapts, from random numbers."""

    takes_any_ways = False
    ridge: NonNegative = 0.0
    seed: Seed = 0


class RandomHead(SeededHead):
    """A linear head adapts, from fixed random numbers.

    With ridge = 0, that is what the published code of the paper's authors does.

    Example:
        >>> from bilevel.few_shot import RandomHead
        >>> RandomHead(seed=1).takes_any_ways
        False
    """

    def formulate(self, model: Model, heads: int) -> Formulation:
        return self.heads(model, heads, {}, model.random_head(self.seed).repeat(heads, 1, 1))


class LearnedHead(SeededHead):
    """A linear head adapts, from a start that is learned along with the embedding: ANIL.

    Example:
        >>> import numpy as np, torch
        >>> from bilevel.datasets import Images
        >>> from bilevel.few_shot import LearnedHead, Tasks, few_shot_problem
        >>> images = Images(np.zeros((8, 2, 2, 1), np.uint8), np.arange(8) // 4, ("a", "b"))
        >>> tasks = Tasks(images, ways=2, shots=1, queries=1, count=2)
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> problem = few_shot_problem(tasks, net, LearnedHead(), batch=2)
        >>> list(problem.x_structure.unflatten(problem.x0))
        ['embedding', 'head']
    """

    def formulate(self, model: Model, heads: int) -> Formulation:
        x0 = {"head": model.random_head(self.seed)}
        return self.heads(model, heads, x0, lambda x: x["head"].expand(heads, -1, -1))


@dataclass(frozen=True)
class WholeNetwork(Learner):
    """All parameters adapt, from a start that is learned: MAML.

    Example:
        >>> import numpy as np, torch
        >>> from bilevel.datasets import Images
        >>> from bilevel.few_shot import Tasks, WholeNetwork, few_shot_problem
        >>> images = Images(np.zeros((8, 2, 2, 1), np.uint8), np.arange(8) // 4, ("a", "b"))
        >>> tasks = Tasks(images, ways=2, shots=1, queries=1, count=2)
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
        >>> problem = few_shot_problem(tasks, net, WholeNetwork(), batch=2)
        >>> len(problem.x0), len(problem.y0)  # a network of 15 + 8 numbers, one for each task
        (23, 46)
    """

    takes_any_ways = False
    statistics = "the statistics of the task's support images, and then of its query images"
    seed: Seed = 0

    def formulate(self, model: Model, heads: int) -> Formulation:
        x0 = {"embedding": model.parameters, "head": model.random_head(self.seed)}
        one = Structure("parameters", x0)
        form = NetworkForm(model.embedding, one, model.shape, model.features, heads)
        return Formulation(NetworkModel(form), x0, lambda x: one.join(x).expand(heads, -1))

    def questions(self, support: Tensor, query: Tensor) -> Source:
        # One task: the network is adapted once, and sees all query images as one batch.
        return as_source("pictures", torch.cat([support, query])[None])

    def notes(self, queries: int) -> list[str]:
        return [
            f"batch normalisation uses the statistics of the {queries} query pictures together: "
            "a label may depend on the other query pictures"
        ]
