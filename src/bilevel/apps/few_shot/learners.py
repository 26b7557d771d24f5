"""What of a model adapts to a task, and where it starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bilevel.arguments import natural, non_negative
from bilevel.models.heads.form import HeadForm, NetworkForm, Shape
from bilevel.problem.structure import Structure


@dataclass(frozen=True)
class Model:
    """An embedding with its initial parameters, the features it gives, and the tasks' shape."""

    embedding: nn.Module
    parameters: dict[str, Tensor]
    features: int
    shape: Shape

    def random_head(self, seed: int) -> Tensor:
        """(features + 1, ways), uniform, as torch starts a linear layer."""
        generator = torch.Generator().manual_seed(seed)
        bound = self.features**-0.5
        head = torch.rand(self.features + 1, self.shape.ways, generator=generator)
        return head.mul_(2 * bound).sub_(bound).to(next(iter(self.parameters.values())))

    def head_form(self, ridge: float, heads: int, learned_start: bool) -> HeadForm:
        structure = Structure("embedding", self.parameters)
        return HeadForm(
            self.embedding, structure, self.shape, self.features, ridge, heads, learned_start
        )


@dataclass(frozen=True)
class Formulation:
    """The losses, and where x and y start; y0 may be a function of x."""

    form: HeadForm | NetworkForm
    x0: dict[str, Any]
    y0: Tensor | Callable[[Any], Tensor]


class Learner(ABC):
    """What adapts."""

    @abstractmethod
    def formulate(self, model: Model, heads: int) -> Formulation:
        """The problem with so many heads in y."""


@dataclass(frozen=True)
class ZeroHead(Learner):
    """A linear head adapts, from zero: the paper's formulation.

    Args:
        ridge: r; positive, so that the inner problem is strongly convex.
    """

    ridge: float = 0.01

    def __post_init__(self) -> None:
        non_negative("ridge", self.ridge)

    def formulate(self, model: Model, heads: int) -> Formulation:
        zeros = torch.zeros_like(model.random_head(0)).repeat(heads, 1, 1)
        form = model.head_form(self.ridge, heads, learned_start=False)
        return Formulation(form, {"embedding": model.parameters}, zeros)


@dataclass(frozen=True)
class RandomHead(Learner):
    """A linear head adapts, from random numbers that stay the same.

    With ridge = 0, that is what the published code of the paper's authors does.
    """

    ridge: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        non_negative("ridge", self.ridge)
        natural("seed", self.seed)

    def formulate(self, model: Model, heads: int) -> Formulation:
        start = model.random_head(self.seed).repeat(heads, 1, 1)
        form = model.head_form(self.ridge, heads, learned_start=False)
        return Formulation(form, {"embedding": model.parameters}, start)


@dataclass(frozen=True)
class LearnedHead(Learner):
    """A linear head adapts, from a start that is learned with the embedding: ANIL."""

    ridge: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        non_negative("ridge", self.ridge)
        natural("seed", self.seed)

    def formulate(self, model: Model, heads: int) -> Formulation:
        x0 = {"embedding": model.parameters, "head": model.random_head(self.seed)}
        form = model.head_form(self.ridge, heads, learned_start=True)
        return Formulation(form, x0, lambda x: x["head"].expand(heads, -1, -1))


@dataclass(frozen=True)
class WholeNetwork(Learner):
    """All parameters adapt, from a start that is learned: MAML."""

    seed: int = 0

    def __post_init__(self) -> None:
        natural("seed", self.seed)

    def formulate(self, model: Model, heads: int) -> Formulation:
        x0 = {"embedding": model.parameters, "head": model.random_head(self.seed)}
        one = Structure("parameters", x0)
        form = NetworkForm(model.embedding, one, model.shape, model.features, heads)
        return Formulation(form, x0, lambda x: one.join(x).expand(heads, -1))
