"""A checkpoint adapted to pictures of new classes, and asked about others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.tasks import pixels
from bilevel.errors import UserError
from bilevel.models.heads.form import Shape


def check_ways(checkpoint: Checkpoint, ways: int) -> None:
    """Refuse a number of classes that the checkpoint cannot have."""
    settings = checkpoint.settings
    if ways != settings.ways and not settings.make_learner().takes_any_ways:
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
    advance: Callable[[int], None] = lambda done: None,
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
    settings, x = checkpoint.settings, checkpoint.x
    tasks = settings.make_learner().questions(pixels(support, x.dtype), pixels(query, x.dtype))
    # One at a time: a step size that is measured must not depend on the other images.
    each = torch.split(torch.arange(len(tasks)), 1)
    shape = Shape(len(support) // shots, shots, queries=len(query) // len(tasks))
    made = settings.formulate(shape, heads=1)
    found: list[NDArray[np.float32]] = []
    for logits in made.adapted(tasks, settings.make_algorithm(), x, checkpoint.step, each):
        found.extend(logits[0].softmax(1).numpy())
        advance(len(found))
    return np.stack(found)
