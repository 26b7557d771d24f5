"""Rows that are copies of each other."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.columns import Array
from bilevel.apps.cleaning.features import Encoder


def copies_of(frame: pd.DataFrame, encoder: Encoder) -> tuple[Array, Array, Array]:
    """Rows with equal cells: how many there are, the first of each, and which each row is a copy
    of.

    A copy would tell the experts its own label. Where most rows are equal to others, that is no
    sign of copying: few columns with few values; then each row stands for itself.
    """
    used = encoder.columns
    hashes = np.arange(len(frame))
    if used:
        hashes = pd.util.hash_pandas_object(frame[used], index=False).to_numpy()
    _, first, copy_of, counts = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) < len(frame) / 2:
        alone = np.arange(len(frame))
        return np.ones(len(frame)), alone, alone
    return counts.astype(float), first, copy_of
