"""Small few-shot problems, and their derivatives by autograd through losses written out by hand.

The truth below takes nothing from the library but the order of x: images of 16×16, four filters,
three ways, two shots, two queries, in float64.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from bilevel.few_shot import FourBlocks, LearnedHead, RandomHead, Tasks, ZeroHead, few_shot_problem
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, max_pool2d, relu

from bilevel import Problem
from bilevel.apps.few_shot.tasks import ENDLESS
from bilevel.datasets import Images

WAYS, SHOTS, QUERIES = 3, 2, 2
SUPPORT = WAYS * SHOTS
HEADS = {"zero": ZeroHead(0.05), "random": RandomHead(seed=1), "learned": LearnedHead(0.01, seed=2)}


@functools.cache
def pictures(classes: int = 6, each: int = 8, size: int = 16, channels: int = 1) -> Images:
    """Noise, in classes of `each` images."""
    shape = (classes * each, size, size, channels)
    noise = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    names = tuple(f"class {c}" for c in range(classes))
    return Images(noise, np.repeat(np.arange(classes), each), names)


@functools.cache  # a problem has no state, and takes a while: it tries its losses
def problem(
    learner: Any = None,
    *,
    count: int = ENDLESS,
    batch: int = 3,
    chunk: int | None = None,
    embedding: nn.Module | None = None,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    tasks = Tasks(pictures(), WAYS, SHOTS, QUERIES, count, dtype=dtype)
    return few_shot_problem(tasks, embedding or network(), learner, batch=batch, chunk=chunk)


def network() -> FourBlocks:
    return FourBlocks(channels=1, size=16, filters=4)


def smooth_network() -> nn.Sequential:
    """As a user may write it: in float32, with running statistics, and smooth in its parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 5, stride=4), nn.BatchNorm2d(4), nn.Tanh(), nn.AvgPool2d(2)
    return nn.Sequential(*layers, nn.Flatten())


def some_point(problem: Problem, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Flat x and y away from the start, where every head is another."""
    generator = torch.Generator().manual_seed(seed)
    dx, dy = (torch.randn(len(v), generator=generator) for v in (problem.x0, problem.y0))
    return problem.x0 + 0.1 * dx.to(problem.dtype), problem.y0 + 0.3 * dy.to(problem.dtype)


def direction(like: Tensor, seed: int = 5) -> Tensor:
    return torch.randn(len(like), generator=torch.Generator().manual_seed(seed)).to(like.dtype)


def features(parameters: dict[str, Tensor], images: Tensor) -> Tensor:
    """The four blocks in the order of the textbook: ReLU before pooling."""
    for i in range(4):
        images = conv2d(images, parameters[f"weights.{i}"], padding=1)
        scale, shift = parameters[f"scales.{i}"], parameters[f"shifts.{i}"]
        images = batch_norm(images, None, None, scale, shift, training=True)
        images = max_pool2d(relu(images), 2)
    return images.flatten(1)


def loss(z: Tensor, head: Tensor, each: int) -> Tensor:
    """The mean cross-entropy of features that lie class by class, `each` a class."""
    logits = z @ head[:-1] + head[-1]
    own = [logits[i, i // each] for i in range(len(logits))]
    return (logits.exp().sum(1).log() - torch.stack(own)).mean()


def adapted_head(
    z: Tensor, head: Tensor, steps: int, lr: float, ridge: float, truncate: int | None = None
) -> Tensor:
    """D gradient steps on the support features z; all but the last `truncate` are cut off."""
    for t in range(steps + 1):
        if truncate is not None and t == steps - truncate:
            head = head.detach()
        if t < steps:
            head = head if head.requires_grad else head.detach().requires_grad_()
            value = loss(z, head, SHOTS) + ridge * head.square().sum()
            head = head - lr * torch.autograd.grad(value, head, create_graph=True)[0]
    return head


def unrolled_heads(
    problem: Problem,
    x: Tensor,
    heads: Tensor | None,
    rows: list[int],
    steps: int,
    lr: float,
    ridge: float,
    truncate: int | None = None,
) -> Tensor:
    """∂f/∂x where heads adapt, from the given ones or from the one in x, on these tasks."""
    x = x.clone().requires_grad_()
    own = problem.x_structure.unflatten(x)
    losses = []
    for slot, images in enumerate(problem.inner_data.rows(torch.tensor(rows))):
        z = features(own["embedding"], images)
        start = own["head"] if heads is None else heads[slot]
        head = adapted_head(z[:SUPPORT], start, steps, lr, ridge, truncate)
        losses.append(loss(z[SUPPORT:], head, QUERIES))
    return torch.autograd.grad(torch.stack(losses).mean(), x)[0]


def unrolled_networks(
    problem: Problem, x: Tensor, rows: list[int], steps: int, lr: float
) -> Tensor:
    """∂f/∂x where all parameters adapt from x, support and query embedded apart."""
    x = x.clone().requires_grad_()
    losses = []
    for images in problem.inner_data.rows(torch.tensor(rows)):
        y = adapted_network(problem, x, images[:SUPPORT], steps, lr)
        losses.append(_network_loss(problem, y, images[SUPPORT:], QUERIES))
    return torch.autograd.grad(torch.stack(losses).mean(), x)[0]


def adapted_network(problem: Problem, x: Tensor, images: Tensor, steps: int, lr: float) -> Tensor:
    """All parameters after D gradient steps on the support images."""
    y = x if x.requires_grad else x.detach().requires_grad_()
    for _ in range(steps):
        value = _network_loss(problem, y, images, SHOTS)
        y = y - lr * torch.autograd.grad(value, y, create_graph=True)[0]
    return y


def _network_loss(problem: Problem, y: Tensor, images: Tensor, each: int) -> Tensor:
    own = problem.x_structure.unflatten(y)
    return loss(features(own["embedding"], images), own["head"], each)


class Counted(nn.Module):
    """An embedding that counts the passes through it."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.reset()

    def reset(self) -> None:
        self.forwards = self.recorded = self.backwards = 0

    def forward(self, images: Tensor) -> Tensor:
        z = self.embedding(images)
        self.forwards += 1
        if z.requires_grad:
            self.recorded += 1
            z.register_hook(self._count)
        return z

    def _count(self, gradient: Tensor) -> None:
        self.backwards += 1
