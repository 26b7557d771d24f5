"""Tables from files: CSV, Parquet or NPZ."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.durable.regular import check_regular
from bilevel.errors import UserError, listed, quoted, short


@dataclass(frozen=True)
class LabelledTable:
    """Rows of features with one label each.

    Args:
        source: where they came from, as messages call it.
        features: a column a feature; the index is the row's number in the file, from 1.
        labels: with the same index.
    """

    source: str
    features: pd.DataFrame
    labels: pd.Series

    def take(self, which: Any, source: str) -> LabelledTable:
        """Some of the rows, with the numbers that they have in the file."""
        return LabelledTable(source, self.features[which], self.labels[which])


def read_table(path: Path, label: str) -> LabelledTable:
    """Read a file and take its label column apart.

    Raises:
        UserError: no such file or column, an unknown kind of file, no rows, two columns of one
            name, a missing label.
    """
    frame = _read(path, label)
    frame.columns = frame.columns.map(str)
    if twice := sorted(set(frame.columns[frame.columns.duplicated()])):
        raise UserError(f"{path} has more than one column named {quoted(twice[0])}: rename them")
    if label not in frame.columns:
        raise UserError(f"{path} has no column {quoted(label)}; it has {listed(frame.columns)}")
    if frame.empty:
        raise UserError(f"{path} has a header but no rows")
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    missing = frame.index[frame[label].isna()]
    if len(missing):
        raise UserError(
            f"{path} has no label in {len(missing)} rows (the first is row {missing[0]}): fill "
            "them in, or leave these rows out; words such as NA and None count as missing"
        )
    return LabelledTable(str(path), frame.drop(columns=label), frame[label])


def as_text(values: pd.Series) -> pd.Series:
    """Values as text, with the numbers 3.0 and 3 the same; text and gaps stay what they are.

    >>> as_text(pd.Series([3.0, None, 0.5])).tolist(), as_text(pd.Series(["007", "3.0"])).tolist()
    (['3', nan, '0.5'], ['007', '3.0'])
    """
    if values.map(type).eq(str).all():
        return values.astype(object)
    words = values.astype(str).str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)
    return words.astype(object).where(values.notna(), np.nan)


def _read(path: Path, label: str) -> pd.DataFrame:
    readers: dict[str, Callable[[Path, str], pd.DataFrame]] = {
        ".csv": _read_csv,
        ".parquet": lambda path, _: pd.read_parquet(path),
        ".npz": lambda path, _: _read_npz(path),
    }
    kind = path.suffix.lower()
    try:
        if not path.exists():
            raise UserError(f"there is no file {path}")
        if path.is_dir():
            raise UserError(f"{path} is a folder: name a CSV, Parquet or NPZ file in it")
        if kind not in readers:
            raise UserError(
                f"{path} ends in {quoted(kind)}: give a file that ends in {', '.join(readers)}"
            )
        check_regular(path)
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty")
        return readers[kind](path, label)
    except UserError:
        raise
    except Exception as error:  # what the readers raise is theirs to choose
        reason = short(" ".join(str(error).split()), 200)
        raise UserError(f"{path} cannot be read as {kind[1:]}: {reason}") from error


def _read_csv(path: Path, label: str) -> pd.DataFrame:
    # pandas would rename the second of two equal names, and make an index of a column that the
    # header does not name: both hide a mistake.
    header = pd.read_csv(path, header=None, nrows=1, dtype=str).iloc[0].dropna()
    if header.duplicated().any():
        name = header[header.duplicated()].iloc[0]
        raise UserError(f"{path} has more than one column named {quoted(name)}: rename them")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # Labels are names, however they look: 007 is not 7, and 1.10 is not 1.1.
        return pd.read_csv(path, index_col=False, low_memory=False, dtype={label: str})


def _read_npz(path: Path) -> pd.DataFrame:
    """One array with a row a sample becomes the features, vectors become single columns."""
    stored = _arrays(path)
    rows = {name: array.shape[0] if array.ndim else 0 for name, array in stored.items()}
    if len(set(rows.values())) > 1:
        raise UserError(f"the arrays of {path} have different numbers of rows: {short(rows)}")
    wide = [name for name, array in stored.items() if array.ndim > 1]
    if len(wide) != 1:
        raise UserError(
            f"{path} must hold one array of features and the labels, got {listed(rows)}"
        )
    matrix = stored.pop(wide[0])
    matrix = matrix.reshape(len(matrix), -1)
    names = [f"{wide[0]}[{j}]" for j in range(matrix.shape[1])]
    return pd.concat([pd.DataFrame(matrix, columns=names), pd.DataFrame(stored)], axis=1)


def _arrays(path: Path) -> dict[str, Any]:
    """What an NPZ file holds; never a pickle, which could run a stranger's code."""
    if not zipfile.is_zipfile(path):
        raise UserError(f"{path} is not a valid NPZ file: write it with numpy.savez")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        stored = {}
        for name in archive.files:
            try:
                array = archive[name]
            except ValueError as error:
                raise UserError(
                    f"the array {quoted(name)} of {path} cannot be read ({short(error)}): "
                    "store text and numbers, not Python objects"
                ) from error
            stored[name] = np.char.decode(array) if array.dtype.kind == "S" else array
    return stored
