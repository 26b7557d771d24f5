"""Labels corrupted on purpose."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bilevel.arguments import positive_integer, valid_seed
from bilevel.datasets.origin import Labels
from bilevel.errors import quoted


class Corruption(NamedTuple):
    """Labels, some of which were replaced.

    Args:
        labels: the new labels.
        replaced: the rows whose label was drawn again, possibly with the same outcome.
        wrong: the rows whose label has changed, which a cleaner should find.

    Example:
        >>> from bilevel.datasets import corrupt
        >>> found = corrupt([0, 0, 0, 0], 1.0, classes=10, seed=0)
        >>> bool(found.replaced.all()), bool((found.wrong == (found.labels != 0)).all())
        (True, True)
    """

    labels: Labels
    replaced: NDArray[np.bool_]
    wrong: NDArray[np.bool_]


def corrupt(labels: Any, fraction: float, classes: int, seed: int) -> Corruption:
    """Replace each label, with probability p, by a class drawn uniformly from all of them.

    A replaced label stays right with probability 1/c, so about p (1 − 1/c) of the rows are wrong.
    Rows that are replaced at p are replaced at any greater p with the same seed, too.

    Reference: Ji, Yang & Liang, ICML 2021, "Data Hyper-Cleaning on MNIST" in the appendix.

    Args:
        labels: integers of 0, ..., classes − 1; not changed.
        fraction: p, from 0 to 1.
        classes: c, the number of classes.
        seed: of the random choices.

    Example:
        >>> import numpy as np
        >>> from bilevel.datasets import corrupt
        >>> old = np.zeros(1000, int)
        >>> labels, replaced, wrong = corrupt(old, 0.4, classes=10, seed=0)
        >>> int(replaced.sum()), int(wrong.sum()), bool(((labels != old) == wrong).all())
        (373, 335, True)
    """
    old = np.asarray(labels)
    positive_integer("classes", classes)
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be from 0 to 1, got {quoted(fraction)}")
    if old.ndim != 1 or not np.issubdtype(old.dtype, np.integer):
        raise ValueError(
            f"labels must be a vector of integers, got {old.dtype} of shape {old.shape}"
        )
    if old.size and not 0 <= old.min() <= old.max() < classes:
        raise ValueError(
            f"labels must be 0, ..., {classes - 1} for {classes} classes, "
            f"got {old.min()} to {old.max()}"
        )
    generator = np.random.default_rng(valid_seed("seed", seed))
    replaced = generator.random(len(old)) < fraction
    drawn = generator.integers(classes, size=len(old))
    new = np.where(replaced, drawn, old).astype(np.int64)
    return Corruption(new, replaced, new != old)
