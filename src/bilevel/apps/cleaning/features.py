"""Features from columns: scikit-learn's imputation, scaling and one-hot encoding."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bilevel.apps.cleaning.tables import LabelledTable, as_text
from bilevel.apps.holdout import Array
from bilevel.errors import UserError, listed, quoted, short

_MOSTLY = 0.5  # a column with more numbers than this is meant to be numeric
_MOST_CATEGORIES = 100
_LARGEST = 1e150  # the scaler squares numbers


@dataclass(frozen=True)
class Columns:
    """Which columns are numbers, and which are categories."""

    numeric: list[str]
    categorical: list[str]


def kinds_of_columns(
    train: LabelledTable, trusted: LabelledTable, categorical: list[str]
) -> Columns:
    """Decide what each column holds; both files must agree.

    Raises:
        UserError: a column is missing in one file, has no values, has a few texts among numbers,
            or numbers that are not finite.
    """
    mine, theirs = list(train.features.columns), list(trusted.features.columns)
    if set(mine) != set(theirs):
        raise UserError(
            f"{train.source} and {trusted.source} have different columns: only the first has "
            f"{listed(sorted(set(mine) - set(theirs)))}, only the second "
            f"{listed(sorted(set(theirs) - set(mine)))}; use --drop for those that do not matter"
        )
    if unknown := set(categorical) - set(mine):
        raise UserError(
            f"--categorical names columns that {train.source} lacks: {listed(sorted(unknown))}"
        )
    if not mine:
        raise UserError(f"{train.source} has no columns besides the labels: nothing to learn from")
    plain, plain_there = _plain_numbers(train), _plain_numbers(trusted)
    numeric = [
        name
        for name in mine
        if (name in plain or _is_numeric(name, train)) and name not in categorical
    ]
    for name in numeric:
        if name not in plain_there and not _is_numeric(name, trusted):
            raise UserError(
                f"column {quoted(name)} holds numbers in {train.source}, but text in "
                f"{trusted.source}: correct it, or use --categorical {_typed(name)}"
            )
    return Columns(numeric, [name for name in mine if name not in numeric])


def _plain_numbers(table: LabelledTable) -> set[str]:
    """Columns that are numbers beyond doubt, found all at once: one by one is slow."""
    numbers = table.features.select_dtypes("number")
    values = np.abs(numbers.to_numpy(float))
    fine = ~np.isnan(values).all(0) & ~(values > _LARGEST).any(0)
    return set(numbers.columns[fine])


def _typed(name: str) -> str:
    """A column's name, as one would type it."""
    return shlex.quote(short(name))


def _is_numeric(name: str, table: LabelledTable) -> bool:
    column, option = f"column {quoted(name)} of {table.source}", _typed(name)
    values = table.features[name].dropna()
    if values.empty:
        raise UserError(f"{column} has no values at all: use --drop {option}")
    if values.dtype.kind not in "biufO" or isinstance(values.dtype, pd.CategoricalDtype):
        return False  # dates and the like
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    if numbers.notna().mean() <= _MOSTLY:
        return False
    texts = values[numbers.isna()]
    if len(texts):
        raise UserError(
            f"{column} holds numbers, but text in {len(texts)} rows (first in row "
            f"{texts.index[0]}: {quoted(texts.iloc[0])}): correct them, or use "
            f"--categorical {option}"
        )
    large = numbers[numbers.abs() > _LARGEST]
    if len(large):
        raise UserError(
            f"{column} holds {len(large)} infinite or huge numbers (first in row "
            f"{large.index[0]}: {large.iloc[0]}): correct them, or use --drop {option}"
        )
    return True


@dataclass(frozen=True)
class Encoded:
    """Both tables as features, and how the features came from the columns.

    Args:
        train, trusted: the features, float32.
        names: of the features: of a number its column's name, of a category `column_value`.
        fill: what stands in for a missing number; 0 for categories, which have none missing.
        centre, scale: feature = (value − centre)/scale.
    """

    train: Array
    trusted: Array
    names: list[str]
    fill: Array
    centre: Array
    scale: Array


def encode(columns: Columns, train: LabelledTable, trusted: LabelledTable) -> Encoded:
    """Features of both tables, scaled by the rows of both."""
    frames = [_frame(columns, table) for table in (train, trusted)]
    # On both: a category that only the trusted rows have needs a column, too.
    transformer = _encoder(columns).fit(pd.concat(frames))
    names = [name.split("__", 1)[1] for name in transformer.get_feature_names_out()]
    first, second = (np.asarray(transformer.transform(frame), np.float32) for frame in frames)
    fill, centre, scale = np.zeros(len(names)), np.zeros(len(names)), np.ones(len(names))
    if columns.numeric:
        imputer, scaler = (step for _, step in transformer.named_transformers_["numbers"].steps)
        numbers = transformer.output_indices_["numbers"]
        fill[numbers], centre[numbers] = imputer.statistics_, scaler.mean_
        scale[numbers] = scaler.scale_
    return Encoded(first, second, names, fill, centre, scale)


def _frame(columns: Columns, table: LabelledTable) -> pd.DataFrame:
    """Numbers as floats, all else as text."""
    numbers = table.features[columns.numeric]
    written = numbers.select_dtypes(object).columns  # numbers that stood among gaps or quotes
    numbers = numbers.assign(**{name: pd.to_numeric(numbers[name]) for name in written})
    texts = {name: as_text(table.features[name]) for name in columns.categorical}
    return pd.concat([numbers.astype(float), pd.DataFrame(texts, table.features.index)], axis=1)


def _encoder(columns: Columns) -> ColumnTransformer:
    """Median and scale for numbers, one column a category for the others."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="(missing)"),
        OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=_MOST_CATEGORIES,
            sparse_output=False,
        ),
    )
    parts: list[tuple[str, Any, list[str]]] = [
        ("numbers", numbers, columns.numeric),
        ("categories", categories, columns.categorical),
    ]
    return ColumnTransformer([part for part in parts if part[2]])


def class_numbers(train: LabelledTable, trusted: LabelledTable) -> tuple[Array, Array, list[str]]:
    """Labels of both tables as numbers, and the classes' names.

    Raises:
        UserError: one class only, or labels that the other file does not have.
    """
    mine, theirs = as_text(train.labels), as_text(trusted.labels)
    classes = sorted(set(mine))
    theirs = _spelled_as(classes, theirs)
    if unknown := sorted(set(theirs) - set(classes)):
        raise UserError(
            f"labels of {trusted.source} that do not occur in {train.source}: {listed(unknown)}; "
            f"there are {listed(classes)}"
        )
    if len(classes) < 2:
        raise UserError(
            f"{train.source} has only one class, {quoted(classes[0])}: nothing to tell apart"
        )
    if missing := sorted(set(classes) - set(theirs)):
        raise UserError(
            f"labels of {train.source} that do not occur in {trusted.source}: {listed(missing)}; "
            "add trusted rows of each class, or correct the labels if they are misspelt"
        )
    number = {name: i for i, name in enumerate(classes)}
    return mine.map(number).to_numpy(int), theirs.map(number).to_numpy(int), classes


def _spelled_as(classes: list[str], labels: pd.Series) -> pd.Series:
    """The labels, with 3.0 as 3 where the classes have that only, or the other way round.

    Whoever writes numbers with a gap among them writes 3 as 3.0.
    """
    spelled = {**{_whole(name): name for name in classes}, **{name: name for name in classes}}
    return labels.map(lambda label: spelled.get(label, spelled.get(_whole(label), label)))


def _whole(label: str) -> str:
    return re.sub(r"^(-?\d+)\.0+$", r"\1", label)
