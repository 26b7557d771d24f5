"""Columns that give the label away: made from it, perhaps, and of no use for judging it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier

from bilevel.apps.cleaning.columns import Array, Column, Kind
from bilevel.errors import quoted

_SURE = 0.99  # of the labels are determined by the column alone
_COMMON = 0.95  # where one class has more of the rows, nothing can be told
_LOOKED_AT, _MOST = 2000, 500  # rows and columns


def leaks(frame: pd.DataFrame, columns: list[Column], labels: Array) -> list[str]:
    """A warning for each column that determines the label alone."""
    some = np.random.default_rng(0).permutation(len(labels))[:_LOOKED_AT]
    part, codes = frame.iloc[some], np.unique(labels[some], return_inverse=True)[1]
    if np.bincount(codes).max() > _COMMON * len(codes):
        return []
    looked_at = [c for c in columns if c.kind in (Kind.NUMBER, Kind.CATEGORY)][:_MOST]
    return [
        f"column {quoted(column.name)} alone determines nearly every label: if it was made from "
        "the label, "
        "no wrong label can be found. Leave it out with --ignore."
        for column in looked_at
        if _determines(part[column.name], codes)
    ]


def _determines(values: pd.Series, codes: Array) -> bool:
    numbers = values if pd.api.types.is_numeric_dtype(values.dtype) else pd.factorize(values)[0]
    X = pd.to_numeric(pd.Series(numbers), errors="coerce").fillna(-1).to_numpy(float)[:, None]
    X = np.clip(X, -1e30, 1e30)
    tree = DecisionTreeClassifier(max_leaf_nodes=max(2 * (int(codes.max()) + 1), 2), random_state=0)
    return bool(tree.fit(X, codes).score(X, codes) > _SURE)
