"""Images by class in a pickle, in the two layouts in which mini-ImageNet is passed on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilevel.datasets.array_pickle import load_arrays, text
from bilevel.datasets.images import Images, by_class_name
from bilevel.datasets.origin import BarFor, advancing
from bilevel.errors import UserError


def read_image_pickle(path: Path, progress: BarFor | None = None) -> Images:
    """Read a pickled dict of images, uint8 (N, height, width, channels), in either layout.

    - `image_data`, and `class_dict`: the indices of each class's images, by the class's name
      (Ren et al., 2018);
    - `data`, and `labels`: a number for each image; with `catname2label`, where it is, the names
      of the classes (Gidaris & Komodakis, 2018).

    Classes are in order of their names; the images of a class are as they lie in the file.
    """
    size = path.stat().st_size
    with advancing(progress, path.name, size) as advance, path.open("rb") as stream:
        entries = load_arrays(stream, str(path))
        advance(size)
    try:
        if "image_data" in entries:
            images, names = np.asarray(entries["image_data"]), _by_index(entries)
        else:
            images, names = np.asarray(entries["data"]), _by_label(entries, path.stem)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} has another layout: {error!r}; expected are the entries image_data and "
            f"class_dict, or data and labels, and found are {', '.join(entries) or 'none'}"
        ) from error
    if images.shape[:1] != names.shape:
        raise UserError(f"{path} has {len(images)} images, but classes for {len(names)}")
    return by_class_name(images, names)


def _by_index(entries: Mapping[str, Any]) -> NDArray[np.str_]:
    """The class of each image, from the indices of each class."""
    members = {text(name): np.asarray(rows) for name, rows in entries["class_dict"].items()}
    names = np.repeat(list(members), [len(rows) for rows in members.values()])
    rows = np.concatenate(list(members.values()))
    if not np.array_equal(np.sort(rows), np.arange(len(rows))):
        raise ValueError("class_dict does not have each image once")
    return names[np.argsort(rows)]


def _by_label(entries: Mapping[str, Any], stem: str) -> NDArray[np.str_]:
    """The class of each image, from its number; without names, numbers that name the file."""
    known = {int(label): text(name) for name, label in entries.get("catname2label", {}).items()}
    labels = np.asarray(entries["labels"], np.int64)
    numbers, places = np.unique(labels, return_inverse=True)
    names = [known.get(number, f"{stem} {number:03d}") for number in numbers.tolist()]
    return np.array(names, str)[places]
