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
from bilevel.arguments import non_negative, valid_seed
from bilevel.models.heads.form import HeadForm, NetworkForm, Shape, TaskOracle
from bilevel.models.heads.networks import NetworkModel, NetworkOracle
from bilevel.models.heads.oracle import HeadModel, HeadOracle
from bilevel.oracles import SharedBatch
from bilevel.problem.problem import Problem
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
class Formulation(ABC):
    """The losses, and where x and y start; y0 may be a function of x."""

    form: Any
    x0: dict[str, Any]
    y0: Tensor | Callable[[Any], Tensor]

    @property
    @abstractmethod
    def model(self) -> HeadModel | NetworkModel:
        """What is known about the losses."""

    @abstractmethod
    def on(self, tasks: Source) -> TaskOracle:
        """An oracle for adapting to these tasks, without derivatives by x."""

    def adapted(
        self, tasks: Source, algorithm: Algorithm, x: Tensor, step: int, batches: Iterable[Tensor]
    ) -> Iterator[Tensor]:
        """The query logits of each batch of tasks, after adapting as the algorithm does."""
        oracle = self.on(tasks)
        y0 = self.y0(self.x0) if callable(self.y0) else self.y0
        for rows in batches:
            y = algorithm.adapt(SharedBatch(oracle, rows), x, y0.reshape(-1), step)
            yield oracle.query_logits(x, y, rows)


class Heads(Formulation):
    """A linear head for each task."""

    @property
    def model(self) -> HeadModel:
        return HeadModel(self.form)

    def on(self, tasks: Source) -> TaskOracle:
        return HeadOracle(self.form, tasks, graph_bytes=0)  # no graph is kept


class Networks(Formulation):
    """A whole network for each task."""

    @property
    def model(self) -> NetworkModel:
        return NetworkModel(self.form)

    def on(self, tasks: Source) -> TaskOracle:
        form: NetworkForm = self.form
        # The outer loss is not needed, and a user's own pictures have no labels for it.
        problem = Problem(form.inner, form.inner, self.x0, self.y0, tasks, tasks)
        return NetworkOracle(form, problem)


class Learner(ABC):
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
        return Heads(form, {"embedding": model.parameters, **x0}, y0)


@dataclass(frozen=True)
class ZeroHead(HeadLearner):
    """A linear head adapts, from zero: the paper's formulation.

    Args:
        ridge: r; positive, so that the inner problem is strongly convex.
    """

    takes_any_ways = True
    ridge: float = 0.01

    def __post_init__(self) -> None:
        non_negative("ridge", self.ridge)

    def formulate(self, model: Model, heads: int) -> Formulation:
        zeros = torch.zeros_like(model.random_head(0)).repeat(heads, 1, 1)
        return self.heads(model, heads, {}, zeros)


@dataclass(frozen=True)
class SeededHead(HeadLearner):
    """A linear head adapts, from random numbers."""

    takes_any_ways = False
    ridge: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        non_negative("ridge", self.ridge)
        valid_seed("seed", self.seed)


class RandomHead(SeededHead):
    """A linear head adapts, from fixed random numbers.

    With ridge = 0, that is what the published code of the paper's authors does.
    """

    def formulate(self, model: Model, heads: int) -> Formulation:
        return self.heads(model, heads, {}, model.random_head(self.seed).repeat(heads, 1, 1))


class LearnedHead(SeededHead):
    """A linear head adapts, from a start that is learned along with the embedding: ANIL."""

    def formulate(self, model: Model, heads: int) -> Formulation:
        x0 = {"head": model.random_head(self.seed)}
        return self.heads(model, heads, x0, lambda x: x["head"].expand(heads, -1, -1))


@dataclass(frozen=True)
class WholeNetwork(Learner):
    """All parameters adapt, from a start that is learned: MAML."""

    takes_any_ways = False
    statistics = "the statistics of the task's support images, and then of its query images"
    seed: int = 0

    def __post_init__(self) -> None:
        valid_seed("seed", self.seed)

    def formulate(self, model: Model, heads: int) -> Formulation:
        x0 = {"embedding": model.parameters, "head": model.random_head(self.seed)}
        one = Structure("parameters", x0)
        form = NetworkForm(model.embedding, one, model.shape, model.features, heads)
        return Networks(form, x0, lambda x: one.join(x).expand(heads, -1))

    def questions(self, support: Tensor, query: Tensor) -> Source:
        # One task: the network is adapted once, and sees all query images as one batch.
        return as_source("pictures", torch.cat([support, query])[None])

    def notes(self, queries: int) -> list[str]:
        return [
            f"batch normalisation uses the statistics of the {queries} query pictures together: "
            "a label may depend on the other query pictures"
        ]
