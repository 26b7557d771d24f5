"""Every data set by name."""

from __future__ import annotations

import importlib

from bilevel.datasets.folder import data_folder
from bilevel.datasets.origin import Dataset, Origin, Progress
from bilevel.discovery import load_modules
from bilevel.errors import UserError


def catalogue() -> dict[str, Origin]:
    """The data sets that the files of this folder define, by name.

    Example:
        >>> from bilevel.datasets import catalogue
        >>> print(*catalogue())
        digits fashion-mnist mnist newsgroups
        >>> catalogue()["mnist"].train_rows
        60000
    """
    found = {
        item.name: item
        for module in load_modules(importlib.import_module(__package__))
        for item in vars(module).values()
        if isinstance(item, Origin)
    }
    return dict(sorted(found.items()))


def find(name: str) -> Origin:
    """The data set of this name."""
    known = catalogue()
    if name not in known:
        raise UserError(f"there is no data set named {name!r}; there are {', '.join(known)}")
    return known[name]


def load(name: str, progress: Progress | None = None) -> Dataset:
    """Load a data set by name, downloading it when it is not in the data folder.

    Images are flattened and scaled to [0, 1]; the newsgroups' rows are sparse and have length 1.

    Args:
        name: one of `catalogue()`.
        progress: makes a bar for each file that is downloaded, from its name.

    Example:
        >>> from bilevel.datasets import load
        >>> digits = load("digits")
        >>> X, y = digits.train
        >>> X.shape, X.dtype.name, float(X.max()), y.dtype.name
        ((1437, 64), 'float32', 1.0, 'int64')
    """
    return find(name).load(data_folder(), progress)
