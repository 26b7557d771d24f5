"""Pictures and their labels: a page in one self-contained file, and a table for the terminal."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

import bilevel
from bilevel import report
from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.labelling import Labelled, Prepared
from bilevel.apps.few_shot.picture_folders import Picture

_SHOWN, _ROWS = 300, 20  # query pictures: on the page, and in the terminal
_SHOWN_SHOTS = 20  # support pictures per class
_SMALL = 64  # pixels; below that, pixels are shown as squares instead of being blurred


def write_labels_page(file: Path, checkpoint: Checkpoint, labelled: Labelled, command: str) -> None:
    """Write the support pictures by class, the labelled query pictures, and what was run."""
    prepared = labelled.prepared
    sections = [
        report.Section("What it learned from", [_support(prepared)]),
        report.Section("Labels", _labels(labelled)),
        report.Section(
            "What was run",
            [
                *map(report.Notice, prepared.notes),
                _facts(checkpoint),
                report.Code("The command", command),
            ],
        ),
    ]
    title = f"{len(prepared.query):,} pictures labelled"
    report.Page(title, _lead(labelled), sections).write(file)


def _lead(labelled: Labelled) -> str:
    prepared, right = labelled.prepared, labelled.right
    lead = (
        f"Learned from {prepared.shots} pictures of each of {len(prepared.classes)} classes. "
        f"Labels: {_counts(labelled)}."
    )
    if right is None:
        return lead
    share = sum(right) / len(right)
    return f"{lead} Of {len(right)} labels, {sum(right)} ({share:.1%}) agree with the folder."


def _support(prepared: Prepared) -> report.Gallery:
    groups = {
        name: [_tile(picture) for picture in prepared.support[name][:_SHOWN_SHOTS]]
        for name in prepared.classes
    }
    more = prepared.shots - _SHOWN_SHOTS
    note = f"The first {_SHOWN_SHOTS} of {prepared.shots} pictures a class." if more > 0 else ""
    return report.Gallery("The pictures of each class", groups, note)


def _labels(labelled: Labelled) -> list[report.Block]:
    prepared = labelled.prepared
    shown = range(min(_SHOWN, len(prepared.query)))
    notes = ["The surest come first. Point at a picture to see its file."]
    if prepared.truth is not None:
        notes.append(
            "Framed, with ✗ and its folder: a picture whose label differs from its folder."
        )
    if len(shown) < len(prepared.query):
        notes.append(
            f"The first {_SHOWN} of {len(prepared.query):,} pictures are shown; labels.csv has all."
        )
    surest = sorted(shown, key=lambda i: -labelled.certainty[i])
    groups = {
        name: [_asked(labelled, i) for i in surest if labelled.labels[i] == name]
        for name in prepared.classes
    }
    pictures = report.Gallery("The pictures that were asked about", groups, " ".join(notes))
    return [pictures] if prepared.truth is None else [pictures, _confusions(labelled)]


def _asked(labelled: Labelled, i: int) -> report.Tile:
    """A query picture, with the probability of its label, and its folder if that differs."""
    truth, right = labelled.prepared.truth, labelled.right
    lines = [f"{labelled.certainty[i]:.0%}"]
    if truth is None or right is None or right[i]:
        return _tile(labelled.prepared.query[i], lines)
    return _tile(labelled.prepared.query[i], [*lines, f"✗ {truth[i]}"], marked=True)


def _confusions(labelled: Labelled) -> report.Table:
    truth, classes = labelled.prepared.truth or [], labelled.prepared.classes
    pairs = list(zip(truth, labelled.labels, strict=True))
    rows: list[list[report.Cell | str | float]] = [
        [
            name,
            *(report.Cell(str(n := pairs.count((name, c))), n, strong=c == name) for c in classes),
        ]
        for name in classes
        if name in truth
    ]
    note = "How many pictures of the folder (row) got the label (column). Bold: the right label."
    return report.Table("Folders and labels", ["folder", *classes], rows, note)


def _tile(picture: Picture, lines: Sequence[str] = (), marked: bool = False) -> report.Tile:
    # PNG keeps the few pixels of a small picture; a photograph takes less room as JPEG.
    small = max(picture.size) <= _SMALL
    kind = "jpeg" if picture.thumbnail.mode == "RGB" and not small else "png"
    stream = io.BytesIO()
    picture.thumbnail.save(stream, kind)
    image = report.Image(stream.getvalue(), picture.name, media_type=f"image/{kind}")
    return report.Tile(image, lines, marked, sharp=small)


def _facts(checkpoint: Checkpoint) -> report.Facts:
    settings = checkpoint.settings
    return report.Facts(
        {
            "model": f"{settings.algorithm} after {checkpoint.step:,} steps on {settings.data}",
            "trained for": f"{settings.ways}-way {settings.shots}-shot tasks",
            "bilevel": bilevel.__version__,
        }
    )


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
        table.add_row(*map(Text, cells))  # names are not markup
    return table


def _counts(labelled: Labelled) -> str:
    """How often each label was given; of many classes, those without a picture are not listed."""
    found, classes = Counter(labelled.labels), labelled.prepared.classes
    listed = [name for name in classes if found[name] or len(classes) <= _ROWS]
    text = ", ".join(f"{found[name]} {name}" for name in listed)
    none = len(classes) - len(listed)
    return text + f"; none of the other {none:,} classes" * (none > 0)


def summary(labelled: Labelled) -> str:
    """How many pictures got each label, and how many are right if that is known."""
    queries, right = labelled.prepared.query, labelled.right
    more = f"... and {len(queries) - _ROWS:,} more\n" if len(queries) > _ROWS else ""
    text = f"{more}{len(queries):,} pictures: {_counts(labelled)}"
    if right is None:
        return text
    return f"{text}\naccuracy: {sum(right) / len(right):.1%} ({sum(right)} of {len(right)})"
