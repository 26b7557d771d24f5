"""What `bilevel few-shot` shows in the terminal: tables, and sentences about them."""

from __future__ import annotations

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.evaluation import Question
from bilevel.apps.few_shot.labelling import Labelled
from bilevel.apps.few_shot.scores import Accuracy

_ROWS = 20


def evaluation_table(checkpoint: Checkpoint, question: Question, found: Accuracy) -> Table:
    """What was asked, and the accuracy."""
    settings = checkpoint.settings
    queries = question.queries or settings.queries
    each = f"{settings.ways}-way {settings.shots}-shot, {queries} query images a class"
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_row("data", f"{settings.data}, {question.split} classes")
    table.add_row("model", f"{settings.algorithm}, step {checkpoint.step:,}")
    table.add_row("tasks", f"{found.tasks:,}, each {each}")
    mean, interval = 100 * found.mean, 100 * found.interval
    table.add_row("accuracy", f"{mean:.2f} ± {interval:.2f} % (95 % interval)")
    return table


def labels_table(labelled: Labelled) -> Table:
    """The first query pictures with their labels."""
    truth, right = labelled.prepared.truth, labelled.right
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("file", "label", "probability", *(() if truth is None else ("folder",))):
        justify: JustifyMethod = "right" if title == "probability" else "left"
        table.add_column(title, justify=justify, overflow="fold")
    for i, picture in enumerate(labelled.prepared.query[:_ROWS]):
        cells = [picture.name, labelled.labels[i], f"{labelled.certainty[i]:.1%}"]
        if truth is not None and right is not None:
            cells.append(truth[i] if right[i] else f"{truth[i]} ✗")
        table.add_row(*map(Text, cells))  # a name is no markup
    return table


def summary(labelled: Labelled) -> str:
    """How many pictures got each label, and how many are right if that is known."""
    queries, labels, right = labelled.prepared.query, labelled.labels, labelled.right
    more = f"... and {len(queries) - _ROWS:,} more\n" if len(queries) > _ROWS else ""
    counts = ", ".join(f"{labels.count(name)} {name}" for name in labelled.prepared.classes)
    text = f"{more}{len(queries):,} pictures: {counts}"
    if right is None:
        return text
    return f"{text}\naccuracy: {sum(right) / len(right):.1%} ({sum(right)} of {len(right)})"
