"""A checkpoint adapted to pictures of new classes, and asked about others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.learners import WholeNetwork, ZeroHead
from bilevel.apps.few_shot.tasks import pixels
from bilevel.errors import UserError
from bilevel.models.heads.form import HeadForm, NetworkForm, Shape
from bilevel.oracles import HeadOracle, SharedBatch, make_oracle
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Rows, Source

Advance = Callable[[int], None]


class OneQuery(Source):
    """Tasks with one query image each: row i is all support images and query image i.

    So the answer for an image depends on no other query image.

    Example:
        >>> tasks = OneQuery(torch.zeros(6, 1, 16, 16), torch.ones(4, 1, 16, 16))
        >>> len(tasks), tasks.rows(torch.tensor([2])).shape
        (4, torch.Size([1, 7, 1, 16, 16]))
    """

    def __init__(self, support: Tensor, query: Tensor) -> None:
        self._support, self._query = support, query

    def __len__(self) -> int:
        return len(self._query)

    def rows(self, rows: Rows) -> Tensor:
        asked = self._query if rows is None else self._query[rows]
        support = self._support.expand(len(asked), *self._support.shape)
        return torch.cat([support, asked[:, None]], dim=1)


def check_ways(checkpoint: Checkpoint, ways: int) -> None:
    """Refuse a number of classes that the checkpoint cannot have."""
    settings = checkpoint.settings
    if ways != settings.ways and not isinstance(settings.make_learner(), ZeroHead):
        raise UserError(
            f"{ways} classes, but this {settings.algorithm} model starts from a last layer for "
            f"{settings.ways}: give {settings.ways}, or train with --ways {ways}. Methods whose "
            "head starts from zero (itd-bio, aid-bio) take any number."
        )


def probabilities(
    checkpoint: Checkpoint,
    support: NDArray[np.uint8],
    query: NDArray[np.uint8],
    shots: int,
    advance: Advance = lambda done: None,
) -> NDArray[np.float32]:
    """Adapt to the support images, and give the probability of each class for each query image.

    Args:
        checkpoint: the model.
        support: (classes × shots, height, width, channels), class by class.
        query: (n, height, width, channels).
        shots: images a class.
        advance: told how many query images are done.

    Returns:
        (n, classes).
    """
    shape = Shape(len(support) // shots, shots, queries=1)
    images = pixels(support, checkpoint.x.dtype), pixels(query, checkpoint.x.dtype)
    if isinstance(checkpoint.settings.make_learner(), WholeNetwork):
        logits = _with_network(checkpoint, shape, *images)
        advance(len(query))
    else:
        logits = _with_heads(checkpoint, shape, *images, advance)
    found: NDArray[np.float32] = logits.softmax(1).numpy()
    return found


def _with_heads(
    checkpoint: Checkpoint, shape: Shape, support: Tensor, query: Tensor, advance: Advance
) -> Tensor:
    algorithm, x = checkpoint.settings.make_algorithm(), checkpoint.x
    made = checkpoint.settings.formulate(shape, heads=1)
    assert isinstance(made.form, HeadForm)
    # No graph is kept: nothing is differentiated by x here.
    oracle = HeadOracle(made.form, OneQuery(support, query), graph_bytes=0)
    y0 = made.y0(made.x0) if callable(made.y0) else made.y0
    found = []
    # One at a time: a step size that is measured must not depend on the other images.
    for rows in torch.split(torch.arange(len(query)), 1):
        seen = SharedBatch(oracle, rows)
        y = algorithm.start().point(seen, x, y0.reshape(-1))
        y = algorithm.inner_solver(checkpoint.step).solve(seen, x, y, seen.streams(0)).y
        found.append(oracle.query_logits(x, y, rows)[:, 0])
        advance(int(rows[-1]) + 1)
    return torch.cat(found)


def _with_network(checkpoint: Checkpoint, shape: Shape, support: Tensor, query: Tensor) -> Tensor:
    algorithm, x = checkpoint.settings.make_algorithm(), checkpoint.x
    made = checkpoint.settings.formulate(shape, heads=1)
    assert isinstance(made.form, NetworkForm)
    # The outer loss is never asked for, and there are no labels to state it with.
    problem = Problem(
        outer=made.form.inner,
        inner=made.form.inner,
        x0=made.x0,
        y0=made.y0,
        outer_data=support[None],
        inner_data=support[None],
    )
    oracle = make_oracle(problem)
    y = algorithm.start().point(oracle, x, problem.y0)
    y = algorithm.inner_solver(checkpoint.step).solve(oracle, x, y, oracle.streams(0)).y
    with torch.no_grad():
        return made.form.logits(y.view(1, -1), query[None])[0]
