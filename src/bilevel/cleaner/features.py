"""Features from columns: scikit-learn's imputation, scaling and one-hot encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bilevel.cleaner.tables import Table
from bilevel.errors import UserError

_MOSTLY = 0.5  # a column with more numbers than this is meant to be numeric
_MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Columns:
    """Which columns are numbers, and which are categories."""

    numeric: list[str]
    categorical: list[str]


def kinds_of_columns(train: Table, trusted: Table, categorical: list[str]) -> Columns:
    """Decide for each column; both files must agree.

    Raises:
        UserError: a column is missing in one file, has no values, or has a few texts among
            numbers.
    """
    mine, theirs = list(train.features.columns), list(trusted.features.columns)
    if set(mine) != set(theirs):
        raise UserError(
            f"{train.source} and {trusted.source} have different columns: only the first has "
            f"{sorted(set(mine) - set(theirs))[:10]}, only the second "
            f"{sorted(set(theirs) - set(mine))[:10]}; use --drop for those that do not matter"
        )
    if unknown := set(categorical) - set(mine):
        raise UserError(f"--categorical names columns that {train.source} lacks: {sorted(unknown)}")
    numeric = [name for name in mine if name not in categorical and _is_numeric(name, train)]
    for name in numeric:
        _is_numeric(name, trusted)
    return Columns(numeric, [name for name in mine if name not in numeric])


def _is_numeric(name: str, table: Table) -> bool:
    values = table.features[name].dropna()
    if values.empty:
        raise UserError(
            f"column {name!r} of {table.source} has no values at all: use --drop {name}"
        )
    if pd.api.types.is_numeric_dtype(values):
        infinite = np.flatnonzero(np.isinf(values.to_numpy(dtype=float)))
        if len(infinite):
            raise UserError(f"column {name!r} of {table.source} holds infinite values")
        return True
    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.notna().mean() <= _MOSTLY:
        return False
    texts = values[numbers.isna()]
    if len(texts):
        raise UserError(
            f"column {name!r} of {table.source} holds numbers, but in {len(texts)} rows text "
            f"(first in row {texts.index[0] + 1}: {texts.iloc[0]!r}): mend them, or use "
            f"--categorical {name}"
        )
    return True


def encoder(columns: Columns) -> ColumnTransformer:
    """Median and scale for numbers, one column a category for the others."""
    parts: list[tuple[str, Any, list[str]]] = []
    if columns.numeric:
        numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
        parts.append(("numbers", numbers, columns.numeric))
    if columns.categorical:
        categories = make_pipeline(
            SimpleImputer(strategy="constant", fill_value="(missing)"),
            OneHotEncoder(
                handle_unknown="infrequent_if_exist",
                max_categories=_MOST_CATEGORIES,
                sparse_output=False,
            ),
        )
        parts.append(("categories", categories, columns.categorical))
    return ColumnTransformer(parts)


def encode(columns: Columns, train: Table, trusted: Table) -> tuple[Any, Any, list[str]]:
    """Features of both tables as float32, scaled by all rows, and the features' names."""

    def prepared(table: Table) -> pd.DataFrame:
        frame = table.features[[*columns.numeric, *columns.categorical]].copy()
        for name in columns.numeric:
            frame[name] = pd.to_numeric(frame[name])
        for name in columns.categorical:
            frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
            frame[name] = frame[name].map(lambda value: value if value is None else str(value))
        return frame

    first, second = prepared(train), prepared(trusted)
    transformer = encoder(columns).fit(pd.concat([first, second]))
    names = [name.split("__", 1)[1] for name in transformer.get_feature_names_out()]
    encoded = [np.asarray(transformer.transform(frame), np.float32) for frame in (first, second)]
    return encoded[0], encoded[1], names


def class_numbers(train: Table, trusted: Table) -> tuple[Any, Any, list[str]]:
    """Labels of both tables as numbers, and the classes' names.

    Raises:
        UserError: one class only, or labels that the other file does not have.
    """
    mine, theirs = (_names(table.labels) for table in (train, trusted))
    classes = sorted(set(mine))
    if unknown := sorted(set(theirs) - set(classes)):
        raise UserError(
            f"{trusted.source} has labels that {train.source} does not have: {unknown[:10]}; "
            f"there are {classes[:10]}"
        )
    if len(classes) < 2:
        raise UserError(f"{train.source} has only one class, {classes[0]!r}: nothing to tell apart")
    if missing := sorted(set(classes) - set(theirs)):
        raise UserError(
            f"{trusted.source} has no trusted row of {missing[:10]}: add at least one of each class"
        )
    number = {name: i for i, name in enumerate(classes)}
    return mine.map(number).to_numpy(), theirs.map(number).to_numpy(), classes


def _names(labels: pd.Series) -> pd.Series:
    """Labels as text, with 3.0 and 3 the same."""
    if pd.api.types.is_float_dtype(labels) and (labels == labels.round()).all():
        labels = labels.astype("int64")
    return labels.astype(str)
