"""The page of pictures and their labels, complete in one file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import bilevel
from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.labelling import Labelled, Prepared
from bilevel.apps.few_shot.picture_folders import Picture
from bilevel.report import (
    Block,
    Cell,
    Code,
    Facts,
    Gallery,
    Image,
    Notice,
    Page,
    Section,
    Table,
    Tile,
)

_SHOWN = 300  # query pictures
_SHOWN_SHOTS = 20  # support pictures a class
_SMALL = 64  # pixels; below it, a picture is shown in squares and not as a blur


def write_labels_page(file: Path, checkpoint: Checkpoint, labelled: Labelled, command: str) -> None:
    """The support pictures by class, the query pictures with their labels, and what was run."""
    prepared = labelled.prepared
    sections = [
        Section("What it learned from", [_support(prepared)]),
        Section("Labels", _labels(labelled)),
        Section(
            "What was run",
            [*map(Notice, prepared.notes), _facts(checkpoint), Code("The command", command)],
        ),
    ]
    title = f"{len(prepared.query):,} pictures labelled"
    Page(title, _lead(labelled), sections).write(file)


def _lead(labelled: Labelled) -> str:
    prepared, right = labelled.prepared, labelled.right
    counts = ", ".join(f"{labelled.labels.count(name)} {name}" for name in prepared.classes)
    lead = (
        f"Learned from {prepared.shots} pictures of each of {len(prepared.classes)} classes. "
        f"Labels: {counts}."
    )
    if right is None:
        return lead
    share = sum(right) / len(right)
    return f"{lead} Of {len(right)} labels, {sum(right)} ({share:.1%}) agree with the folder."


def _support(prepared: Prepared) -> Gallery:
    groups = {
        name: [_tile(picture) for picture in prepared.support[name][:_SHOWN_SHOTS]]
        for name in prepared.classes
    }
    more = prepared.shots - _SHOWN_SHOTS
    note = f"The first {_SHOWN_SHOTS} of {prepared.shots} pictures a class." if more > 0 else ""
    return Gallery("The pictures of each class", groups, note)


def _labels(labelled: Labelled) -> list[Block]:
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
    pictures = Gallery("The pictures that were asked about", groups, " ".join(notes))
    return [pictures] if prepared.truth is None else [pictures, _confusions(labelled)]


def _asked(labelled: Labelled, i: int) -> Tile:
    """A query picture, with the probability of its label and with its folder if that differs."""
    truth, right = labelled.prepared.truth, labelled.right
    lines = [f"{labelled.certainty[i]:.0%}"]
    if truth is None or right is None or right[i]:
        return _tile(labelled.prepared.query[i], lines)
    return _tile(labelled.prepared.query[i], [*lines, f"✗ {truth[i]}"], marked=True)


def _confusions(labelled: Labelled) -> Table:
    truth, classes = labelled.prepared.truth or [], labelled.prepared.classes
    pairs = list(zip(truth, labelled.labels, strict=True))
    rows: list[list[Cell | str | float]] = [
        [name, *(Cell(str(n := pairs.count((name, c))), n, strong=c == name) for c in classes)]
        for name in classes
        if name in truth
    ]
    note = "How many pictures of the folder (row) got the label (column). Bold: the right label."
    return Table("Folders and labels", ["folder", *classes], rows, note)


def _tile(picture: Picture, lines: Sequence[str] = (), marked: bool = False) -> Tile:
    small = max(picture.size) <= _SMALL
    kind = "jpeg" if picture.thumbnail.mode == "RGB" and not small else "png"
    stream = io.BytesIO()
    picture.thumbnail.save(stream, kind)
    image = Image(stream.getvalue(), picture.name, media_type=f"image/{kind}")
    return Tile(image, lines, marked, sharp=small)


def _facts(checkpoint: Checkpoint) -> Facts:
    settings = checkpoint.settings
    return Facts(
        {
            "model": f"{settings.algorithm} after {checkpoint.step:,} steps on {settings.data}",
            "trained for": f"{settings.ways}-way {settings.shots}-shot tasks",
            "bilevel": bilevel.__version__,
        }
    )
