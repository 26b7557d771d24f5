"""The job of `bilevel few-shot adapt`: read the folders, adapt, label, write."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bilevel.apps.cells import guarded
from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.picture_folders import (
    SUFFIXES,
    Listing,
    Picture,
    Reader,
    check_sizes,
    look_into,
    size_notes,
)
from bilevel.apps.few_shot.tasks import pixels
from bilevel.errors import UserError, quoted
from bilevel.models.heads.form import Shape


@dataclass(frozen=True)
class Request:
    """The user's request; see `bilevel few-shot adapt --help`."""

    support: Path
    query: Path
    shots: int | None = None
    resize: bool = False
    invert: bool = False


@dataclass(frozen=True, eq=False)
class Prepared:
    """The checked pictures, and what the user should know about them.

    Args:
        classes: their names, in order.
        support: the pictures of each class, the same number for each.
        query: the pictures to label.
        truth: the class of each, if the folders show it.
        notes: what was skipped or changed.
    """

    classes: tuple[str, ...]
    support: dict[str, list[Picture]]
    query: list[Picture]
    truth: list[str] | None
    notes: list[str]

    @property
    def shots(self) -> int:
        return len(self.support[self.classes[0]])


@dataclass(frozen=True, eq=False)
class Labelled:
    """The probability of each class (columns) for each query picture (rows)."""

    prepared: Prepared
    probabilities: NDArray[np.float32]

    @property
    def labels(self) -> list[str]:
        return [self.prepared.classes[i] for i in self.probabilities.argmax(1)]

    @property
    def certainty(self) -> list[float]:
        """The probability of the label."""
        return [float(p) for p in self.probabilities.max(1)]

    @property
    def right(self) -> list[bool] | None:
        """Which labels are right, if the truth is known."""
        if self.prepared.truth is None:
            return None
        return [a == b for a, b in zip(self.labels, self.prepared.truth, strict=True)]


def prepare(checkpoint: Checkpoint, request: Request) -> Prepared:
    """Read and check all pictures before any other work."""
    settings = checkpoint.settings
    support, query = look_into(request.support), look_into(request.query)
    chosen, notes = _chosen(support, request, settings.shots)
    check_ways(checkpoint, len(chosen))
    asked, truth = _asked(query, request, tuple(chosen))
    reader = Reader(settings.image_shape, request.invert)
    shown = {name: _read(reader, files, request.support) for name, files in chosen.items()}
    pictures = _read(reader, asked, request.query)
    everything = [*(picture for group in shown.values() for picture in group), *pictures]
    if not request.resize:
        check_sizes(everything)
    notes += _ignored(support, query)
    notes += size_notes(everything, settings.image_shape)
    notes += _seen_before(shown, pictures)
    notes += settings.make_learner().notes(len(pictures))
    if truth is None and query.classes:
        notes.append(
            f"the folders in {request.query} are not named after the classes: no accuracy is given"
        )
    return Prepared(tuple(chosen), shown, pictures, truth, notes)


def label(
    checkpoint: Checkpoint, prepared: Prepared, advance: Callable[[int], None] = lambda done: None
) -> Labelled:
    """Adapt to the support pictures, and label the others."""
    support = [picture for name in prepared.classes for picture in prepared.support[name]]
    found = probabilities(
        checkpoint, _stack(support), _stack(prepared.query), prepared.shots, advance
    )
    return Labelled(prepared, found)


def write_table(file: Path, labelled: Labelled) -> None:
    """Write a line for each query picture: its label and the probability of each class."""
    prepared = labelled.prepared
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["file", "label", "probability", *(f"p({c})" for c in prepared.classes)])
        for picture, name, own, all_of_it in zip(
            prepared.query, labelled.labels, labelled.certainty, labelled.probabilities, strict=True
        ):
            shown = guarded(picture.name), guarded(name), f"{own:.6g}"
            table.writerow([*shown, *(f"{p:.6g}" for p in all_of_it)])


def _stack(pictures: list[Picture]) -> NDArray[np.uint8]:
    return np.stack([picture.pixels for picture in pictures])


def _read(reader: Reader, files: Iterable[Path], folder: Path) -> list[Picture]:
    return [reader.read(file, _name(file, folder)) for file in files]


def _name(file: Path, folder: Path) -> str:
    """Its path inside the folder; bytes that are not text are escaped."""
    return file.relative_to(folder).as_posix().encode("utf-8", "backslashreplace").decode()


def _chosen(
    listing: Listing, request: Request, trained: int
) -> tuple[dict[str, list[Path]], list[str]]:
    """The support pictures of each class, and a note on those that are left out."""
    folder, classes = request.support, listing.classes
    if listing.loose:
        raise UserError(
            f"{listing.loose[0]} lies next to the class folders: move it into the folder of "
            f"its class, {folder}/CLASS/{listing.loose[0].name}"
        )
    if len(classes) < 2:
        found = f"one, {quoted(next(iter(classes)))}" if classes else "none"
        raise UserError(
            f"{folder} needs a folder of pictures for each of at least 2 classes; it has {found}"
        )
    counts = {name: len(files) for name, files in classes.items()}
    wanted = request.shots or trained
    if few := {name: count for name, count in counts.items() if count < wanted}:
        raise UserError(
            f"{wanted} pictures of each class are needed, but {_counted(few)} "
            f"(a picture's name ends in {', '.join(SUFFIXES)})"
            + ("" if request.shots else "; give more, or ask for fewer with --shots")
        )
    used = request.shots or min(counts.values())
    left = {name: count - used for name, count in counts.items() if count > used}
    notes = [
        f"the first {used} pictures of each class are used, in order of their names; left out are "
        + ", ".join(f"{count} of {quoted(name)}" for name, count in left.items())
    ]
    return {name: files[:used] for name, files in classes.items()}, notes if left else []


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{quoted(name)} has {count}" for name, count in counts.items())


def _asked(
    listing: Listing, request: Request, classes: tuple[str, ...]
) -> tuple[list[Path], list[str] | None]:
    """The query pictures, and their classes if the folders are named after them."""
    folders = {name: files for name, files in listing.classes.items() if files}
    inside = [(file, name) for name, files in folders.items() for file in files]
    files = [*listing.loose, *(file for file, _ in inside)]
    if not files:
        raise UserError(
            f"there are no pictures in {request.query} (their names end in {', '.join(SUFFIXES)})"
        )
    known = [name for name in folders if name in classes]
    if not known:
        return files, None
    strange = [*(f"the folder {quoted(name)}" for name in folders if name not in classes)]
    strange += [f"the picture {quoted(file.name)}" for file in listing.loose]
    if strange:
        raise UserError(
            f"in {request.query}, {quoted(known[0])} is named after a class, but {strange[0]} "
            "belongs to none: put all pictures into folders named after the support's classes, or "
            "all directly into the query folder"
        )
    return files, [name for _, name in inside]


def _ignored(*listings: Listing) -> list[str]:
    ignored = [path for listing in listings for path in listing.ignored]
    names = ", ".join(path.name for path in ignored[:5]) + (", ..." if len(ignored) > 5 else "")
    return [f"{len(ignored)} files are not pictures and were skipped: {names}"] * bool(ignored)


def _seen_before(support: dict[str, list[Picture]], query: list[Picture]) -> list[str]:
    known = {picture.digest for group in support.values() for picture in group}
    twice = [picture.name for picture in query if picture.digest in known]
    if not twice:
        return []
    return [
        f"{len(twice)} query pictures are also support pictures ({twice[0]}): their labels say "
        "nothing about how good the model is"
    ]


def check_ways(checkpoint: Checkpoint, ways: int) -> None:
    """Refuse a number of classes that the model cannot handle."""
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
    """Adapt to the support images; the probability of each class for each query image.

    Args:
        checkpoint: the model.
        support: (classes × shots, height, width, channels), class by class.
        query: (n, height, width, channels).
        shots: support images per class.
        advance: called with the number of query images done.

    Returns:
        (n, classes).
    """
    settings, x = checkpoint.settings, checkpoint.x
    tasks = settings.make_learner().questions(pixels(support, x.dtype), pixels(query, x.dtype))
    # One at a time: a measured step size must not depend on other query images.
    each = torch.split(torch.arange(len(tasks)), 1)
    shape = Shape(len(support) // shots, shots, queries=len(query) // len(tasks))
    made = settings.formulate(shape, heads=1)
    found: list[NDArray[np.float32]] = []
    for logits in made.adapted(tasks, settings.make_algorithm(), x, checkpoint.step, each):
        found.extend(logits[0].softmax(1).numpy())
        advance(len(found))
    return np.stack(found)
