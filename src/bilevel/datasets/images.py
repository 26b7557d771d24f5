"""Images by class, in three splits that share no class: what few-shot tasks are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Images:
    """The images of one split.

    Args:
        images: uint8, (N, height, width, channels).
        labels: int64, (N,), each of 0, ..., len(classes) − 1.
        classes: the meaning of labels 0, 1, ...

    Example:
        >>> import numpy as np
        >>> from bilevel.datasets import Images
        >>> pictures = Images(np.zeros((4, 2, 2, 1), np.uint8), np.array([0, 0, 0, 1]), ("a", "b"))
        >>> pictures.counts().tolist()
        [3, 1]
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def counts(self) -> NDArray[np.int64]:
        """The number of images of each class."""
        return np.bincount(self.labels, minlength=len(self.classes))


@dataclass(frozen=True, eq=False)
class ImageClasses:
    """Three splits that share no class.

    Args:
        name: as on the command line.
        train, validation, test: to learn from, to choose by, to report on.
    """

    name: str
    train: Images
    validation: Images
    test: Images


def by_class_name(images: NDArray[np.uint8], names: Sequence[str] | NDArray[np.str_]) -> Images:
    """Images with the class name of each; classes are in order of their names."""
    classes, labels = np.unique(np.asarray(names, str), return_inverse=True)
    return in_order(images, labels, tuple(classes.tolist()), list(range(len(classes))))


def in_order(
    images: NDArray[np.uint8], labels: NDArray[np.int64], classes: Sequence[str], chosen: list[int]
) -> Images:
    """The images of the chosen classes, class by class; within a class, in the order they had.

    Args:
        images, labels, classes: of all.
        chosen: the labels to take; the i-th of them becomes label i.

    Example:
        >>> import numpy as np
        >>> from bilevel.datasets.images import in_order
        >>> pixels = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)
        >>> part = in_order(pixels, np.array([2, 1, 0, 2]), ("a", "b", "c"), [2, 0])
        >>> part.images.ravel().tolist(), part.labels.tolist(), part.classes
        ([0, 3, 2], [0, 0, 1], ('c', 'a'))
    """
    new = np.full(len(classes), len(chosen))
    new[chosen] = np.arange(len(chosen))
    relabelled = new[labels]
    order = np.argsort(relabelled, kind="stable")[: int((relabelled < len(chosen)).sum())]
    if not np.array_equal(order, np.arange(len(labels))):  # a copy can be a gigabyte
        images = images[order]
    return Images(images, relabelled[order].astype(np.int64), tuple(classes[i] for i in chosen))
