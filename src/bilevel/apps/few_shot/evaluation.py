"""How good a checkpoint is: its accuracy on new tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.picture_folders import OwnPictures
from bilevel.apps.few_shot.scores import Accuracy, accuracy, percent
from bilevel.apps.few_shot.settings import check_classes
from bilevel.datasets import ImageClasses, ImageOrigin
from bilevel.durable.files import write_text
from bilevel.durable.folders import named_errors
from bilevel.errors import UserError


@dataclass(frozen=True)
class Question:
    """Which tasks to draw for an evaluation.

    Args:
        split: the classes to draw from: "test", "validation" or "train".
        tasks: how many.
        seed: of the draws.
        queries: query images per class; as in training if None.
    """

    split: str
    tasks: int
    seed: int
    queries: int | None = None


def check(checkpoint: Checkpoint, origin: ImageOrigin | OwnPictures, question: Question) -> None:
    """Refuse an impossible evaluation before the images are loaded."""
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
    """The accuracy on the query images of tasks, after adapting to each as in training."""
    settings = checkpoint.settings
    part = images.splits[question.split]
    problem = settings.evaluation_problem(part, question.seed, question.queries)
    algorithm, x, step = settings.make_algorithm(), checkpoint.x, checkpoint.step
    return accuracy(problem, algorithm, x, question.tasks, step=step, advance=advance)


def write_record(file: Path, checkpoint: Checkpoint, question: Question, found: Accuracy) -> None:
    """Write the question and the result as JSON."""
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


def evaluation_table(checkpoint: Checkpoint, question: Question, found: Accuracy) -> Table:
    """The question and the accuracy."""
    settings = checkpoint.settings
    queries = question.queries or settings.queries
    each = f"{settings.ways}-way {settings.shots}-shot, {queries} query images a class"
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_row("data", f"{settings.data}, {question.split} classes")
    table.add_row("model", f"{settings.algorithm}, step {checkpoint.step:,}")
    table.add_row("tasks", f"{found.tasks:,}, each {each}")
    table.add_row("accuracy", f"{percent(found.mean, found.interval)} (95 % interval)")
    return table
