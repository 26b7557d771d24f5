"""The page of pictures and their labels, complete in one file."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from markupsafe import Markup

import bilevel
from bilevel.few_shot.checkpoint import Checkpoint
from bilevel.few_shot.labelling import Labelled, Prepared
from bilevel.few_shot.picture_folders import Picture
from bilevel.report import Block, Cell, Code, Facts, Notice, Page, Section, Table

_SHOWN = 300  # query pictures
_SHOWN_SHOTS = 20  # support pictures a class
_STYLE = "height: 4.5rem; vertical-align: middle; margin: 0 0.35rem 0.35rem 0; "
_FRAME = "outline: 3px solid var(--warning); "
_TILE = (
    "display: inline-block; width: 5.5rem; padding: 0.2rem; vertical-align: top; "
    "font-size: 0.75rem; line-height: 1.35; overflow-wrap: anywhere"
)
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


def _support(prepared: Prepared) -> Table:
    rows = [
        [name, Markup("").join(map(_image, prepared.support[name][:_SHOWN_SHOTS]))]
        for name in prepared.classes
    ]
    more = prepared.shots - _SHOWN_SHOTS
    note = f"The first {_SHOWN_SHOTS} of {prepared.shots} pictures a class." if more > 0 else ""
    return Table("The pictures of each class", ["class", "pictures"], rows, note)


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
    groups = {name: [i for i in shown if labelled.labels[i] == name] for name in prepared.classes}
    rows = [[name, _group(labelled, group)] for name, group in groups.items()]
    pictures = Table(
        "The pictures that were asked about", ["label", "pictures"], rows, " ".join(notes)
    )
    return [pictures] if prepared.truth is None else [pictures, _confusions(labelled)]


def _group(labelled: Labelled, numbers: list[int]) -> Markup:
    """Pictures of one label, the surest first."""
    ordered = sorted(numbers, key=lambda i: -labelled.certainty[i])
    return Markup("").join(_asked(labelled, i) for i in ordered) or Markup("–")


def _asked(labelled: Labelled, i: int) -> Markup:
    """A query picture, with the probability of its label and with its folder if that differs."""
    truth, right = labelled.prepared.truth, labelled.right
    wrong = truth is not None and right is not None and not right[i]
    picture = _image(labelled.prepared.query[i], _FRAME if wrong else "")
    words = Markup("{:.0%}").format(labelled.certainty[i])
    words += Markup("<br>✗ {}").format(truth[i]) if truth and wrong else ""
    return Markup('<span style="{}">{}<br>{}</span>').format(_TILE, picture, words)


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


def _image(picture: Picture, frame: str = "") -> Markup:
    """The picture as HTML. Its name is escaped; the rest is ours."""
    stream = io.BytesIO()
    photo = picture.thumbnail.mode == "RGB" and max(picture.size) > _SMALL
    kind = "jpeg" if photo else "png"
    picture.thumbnail.save(stream, kind)
    source = f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
    rendering = "auto" if max(picture.size) > _SMALL else "pixelated"
    style = f"{_STYLE}{frame}image-rendering: {rendering}"
    html = '<img src="{}" alt="{}" title="{}" loading="lazy" style="{}">'
    return Markup(html).format(source, picture.name, picture.name, style)


def _facts(checkpoint: Checkpoint) -> Facts:
    settings = checkpoint.settings
    return Facts(
        {
            "model": f"{settings.algorithm} after {checkpoint.step:,} steps on {settings.data}",
            "trained for": f"{settings.ways}-way {settings.shots}-shot tasks",
            "bilevel": bilevel.__version__,
        }
    )
