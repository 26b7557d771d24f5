"""Every data set by name."""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from bilevel.datasets.extras import data_folder
from bilevel.datasets.image_origin import ImageClasses, ImageOrigin
from bilevel.datasets.origin import BarFor, Origin
from bilevel.datasets.tables import Dataset, TableOrigin
from bilevel.discovery import load_modules
from bilevel.errors import UserError, pick, quoted

Kind = TypeVar("Kind", bound=Origin[Any])


def catalogue() -> dict[str, Origin[Any]]:
    """The data sets that the files of this folder define, by name.

    Example:
        >>> from bilevel.datasets import catalogue
        >>> print(*catalogue())
        covtype digits fashion-mnist fc100 ijcnn1 mini-imagenet mnist newsgroups omniglot
        >>> catalogue()["mnist"].train_rows
        60000
        >>> catalogue()["fc100"].classes
        {'train': 60, 'validation': 20, 'test': 20}
    """
    found = {
        item.name: item
        for module in load_modules(importlib.import_module(__package__))
        for item in vars(module).values()
        if isinstance(item, Origin)
    }
    return dict(sorted(found.items()))


def find(name: str) -> Origin[Any]:
    """The data set of this name."""
    return pick("data set named", name, catalogue())


def load(name: str, progress: BarFor | None = None) -> Dataset:
    """Load a table by name, downloading it when it is not in the data folder.

    Images are flattened and scaled to [0, 1]; the newsgroups' rows are sparse and have length 1.

    Args:
        name: one of `catalogue()` that holds rows with labels.
        progress: makes a progress bar from the name of each file that is downloaded.

    Example:
        >>> from bilevel.datasets import load
        >>> digits = load("digits")
        >>> X, y = digits.train
        >>> X.shape, X.dtype.name, float(X.max()), y.dtype.name
        ((1437, 64), 'float32', 1.0, 'int64')
    """
    origin = _find_kind(name, TableOrigin)  # type: ignore[type-abstract]
    return origin.load(data_folder(), progress)


def load_images(name: str, progress: BarFor | None = None) -> ImageClasses:
    """Load images by class, getting and converting them when they are not in the data folder.

    Args:
        name: one of `catalogue()` that holds images by class: fc100, mini-imagenet, omniglot.
        progress: makes a progress bar from the name of each file that is downloaded or made.

    Example:
        >>> from bilevel.datasets import load_images
        >>> load_images("digits")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        bilevel.errors.UserError: 'digits' holds rows with labels, ...
    """
    origin = _find_kind(name, ImageOrigin)  # type: ignore[type-abstract]
    return origin.load(data_folder(), progress)


def _find_kind(name: str, kind: type[Kind]) -> Kind:
    origin = find(name)
    if isinstance(origin, kind):
        return origin
    names = ", ".join(known.name for known in catalogue().values() if isinstance(known, kind))
    raise UserError(
        f"{quoted(name)} holds {origin.kind}, and is loaded by `bilevel.datasets.{origin.loader}`; "
        f"this function loads {kind.kind}: one of {names}"
    )
