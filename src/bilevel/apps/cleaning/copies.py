"""Rows that are copies of each other."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.columns import Array
from bilevel.apps.cleaning.features import Encoder

_MANY, _DIFFER = 100, 1.01  # distinct rows; what their labels may add to them


def copies_of(frame: pd.DataFrame, encoder: Encoder, labels: Array) -> tuple[Array, Array, Array]:
    """Rows with equal cells: how many there are, the first of each, and which each row is a copy
    of.

    A copy would tell the experts its own label. Where most rows are equal to others, that is no
    sign of copying: few columns with few values; then each row stands for itself. Unless there are
    many distinct rows whose copies all have one label: then the file holds its rows several times.
    """
    used = encoder.columns
    hashes = np.arange(len(frame))
    if used:
        hashes = pd.util.hash_pandas_object(frame[used], index=False).to_numpy()
    _, first, copy_of, counts = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    labelled = len(pd.DataFrame({"row": copy_of, "label": labels}).drop_duplicates())
    by_chance = len(first) < _MANY or labelled > _DIFFER * len(first)
    if len(first) < len(frame) / 2 and by_chance:
        alone = np.arange(len(frame))
        return np.ones(len(frame)), alone, alone
    return counts.astype(float), first, copy_of
