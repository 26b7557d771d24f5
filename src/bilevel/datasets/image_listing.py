"""Images in a folder, listed with their classes in a csv file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from bilevel.datasets.extras import extra
from bilevel.datasets.images import Images, by_class_name
from bilevel.datasets.origin import BarFor, advancing
from bilevel.datasets.pictures import picture
from bilevel.errors import UserError


def read_listing(listing: Path) -> list[tuple[str, str]]:
    """The (filename, label) of each line of a csv file with these two columns."""
    try:
        with listing.open(newline="", encoding="utf-8") as stream:
            rows = [
                (row["filename"], row["label"])
                for row in csv.DictReader(stream, skipinitialspace=True)
            ]
    except (KeyError, csv.Error, UnicodeDecodeError) as error:
        raise UserError(
            f"{listing} is not a csv file with the columns filename and label: {error!r}"
        ) from error
    for line, (file, label) in enumerate(rows, start=2):
        if not file or not label or Path(file).name != file:
            raise UserError(
                f"{listing}, line {line}: expected the name of a file and its class, "
                f"found {file!r} and {label!r}"
            )
    return rows


def read_listed_images(
    listing: Path, folder: Path, shape: tuple[int, int, int], progress: BarFor | None
) -> Images:
    """The listed images of a folder, squeezed to one size by Pillow's LANCZOS filter.

    Classes are in order of their names; the images of a class are in the order of the list.

    Args:
        listing: the csv file.
        folder: of the images.
        shape: height, width, and 3 channels.
        progress: makes a bar, from the list's name.
    """
    rows = read_listing(listing)
    images = np.empty((len(rows), *shape), np.uint8)
    with advancing(progress, listing.name, images.nbytes) as advance:
        for image, (file, _) in zip(images, rows, strict=True):
            image[...] = _squeezed(folder / file, shape)
            advance(image.nbytes)
    return by_class_name(images, [label for _, label in rows])


def _squeezed(path: Path, shape: tuple[int, int, int]) -> Any:
    if not path.is_file():
        raise UserError(f"{path} is missing, but listed")
    height, width, _ = shape
    lanczos = extra("PIL.Image").Resampling.LANCZOS
    return picture(path.read_bytes(), str(path), "RGB").resize((width, height), lanczos)
