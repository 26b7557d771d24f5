"""How good a checkpoint is: its accuracy on new tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.own_pictures import OwnPictures
from bilevel.apps.few_shot.scores import Accuracy, accuracy
from bilevel.apps.few_shot.settings import check_classes
from bilevel.datasets import ImageClasses, ImageOrigin, Images
from bilevel.durable.files import write_text
from bilevel.durable.folders import named_errors
from bilevel.errors import UserError


@dataclass(frozen=True)
class Question:
    """Which tasks to draw for an evaluation.

    Args:
        split: "test", "validation" or "train": whose classes.
        tasks: how many.
        seed: of the draws.
        queries: images a class to ask about; as in training if None.
    """

    split: str
    tasks: int
    seed: int
    queries: int | None = None


def check(checkpoint: Checkpoint, origin: ImageOrigin | OwnPictures, question: Question) -> None:
    """Refuse what cannot be asked, before the images are loaded."""
    height, width, channels = origin.shape
    if checkpoint.settings.image_shape != (channels, height, width):
        raise UserError(
            f"the checkpoint is for images of (channels, height, width) = "
            f"{checkpoint.settings.image_shape}, but those of {origin.name} have "
            f"{(channels, height, width)}"
        )
    check_classes(origin, checkpoint.settings.ways, (question.split,))


def evaluate(
    checkpoint: Checkpoint,
    images: ImageClasses,
    question: Question,
    advance: Callable[[int], None] = lambda done: None,
) -> Accuracy:
    """Adapt to the tasks as in training, and ask about their query images."""
    settings = checkpoint.settings
    parts: dict[str, Images] = {
        "train": images.train,
        "validation": images.validation,
        "test": images.test,
    }
    problem = settings.evaluation_problem(parts[question.split], question.seed, question.queries)
    return accuracy(
        problem,
        settings.make_algorithm(),
        checkpoint.x,
        question.tasks,
        step=checkpoint.step,
        advance=advance,
    )


def write_record(file: Path, checkpoint: Checkpoint, question: Question, found: Accuracy) -> None:
    """What was asked and found, as JSON."""
    settings = checkpoint.settings
    record = {
        "data": settings.data,
        "algorithm": settings.algorithm,
        "step": checkpoint.step,
        "split": question.split,
        "tasks": found.tasks,
        "ways": settings.ways,
        "shots": settings.shots,
        "queries": question.queries or settings.queries,
        "seed": question.seed,
        "accuracy": found.mean,
        "interval": found.interval,
        "batch_statistics": settings.statistics,
    }
    with named_errors(file):
        write_text(file, json.dumps(record, indent=2) + "\n")
