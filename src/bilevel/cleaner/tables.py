"""Tables from files: CSV, Parquet or NPZ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.errors import UserError


@dataclass(frozen=True)
class Table:
    """Rows of features with one label each, and where they came from."""

    source: Path
    features: pd.DataFrame
    labels: pd.Series


def read_table(path: Path, label: str, drop: list[str]) -> Table:
    """Read a file and take its label column apart.

    Raises:
        UserError: no such file or column, an unknown kind of file, no rows, a missing label.
    """
    frame = _read(path, label)
    for column in [label, *drop]:
        if column not in frame.columns:
            raise UserError(
                f"{path} has no column {column!r}; it has {', '.join(map(str, frame.columns[:20]))}"
            )
    if frame.empty:
        raise UserError(f"{path} has a header but no rows")
    missing = np.flatnonzero(frame[label].isna())
    if len(missing):
        raise UserError(
            f"{path} has no label in {len(missing)} rows (the first is row {missing[0] + 1}): "
            "fill them in, or leave these rows out"
        )
    features = frame.drop(columns=[label, *drop])
    if features.shape[1] == 0:
        raise UserError(f"{path} has no columns besides {label!r}: there is nothing to learn from")
    return Table(path, features, frame[label])


def _read(path: Path, label: str) -> pd.DataFrame:
    if not path.exists():
        raise UserError(f"there is no file {path}")
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a CSV, Parquet or NPZ file in it")
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": pd.read_csv,
        ".parquet": pd.read_parquet,
        ".npz": lambda file: _read_npz(file, label),
    }
    kind = path.suffix.lower()
    if kind not in readers:
        raise UserError(f"{path} ends in {kind!r}: give a file that ends in {', '.join(readers)}")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")
    try:
        return readers[kind](path)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be read as {kind[1:]}: {error}") from error


def _read_npz(path: Path, label: str) -> pd.DataFrame:
    """A matrix X (or the only two-dimensional array), and other arrays as single columns."""
    with np.load(path, allow_pickle=False) as arrays:
        stored: dict[str, Any] = {name: arrays[name] for name in arrays.files}
    rows = {name: array.shape[0] if array.ndim else 0 for name, array in stored.items()}
    if len(set(rows.values())) != 1:
        raise UserError(f"the arrays of {path} have different numbers of rows: {rows}")
    wide = [name for name, array in stored.items() if array.ndim > 1]
    if len(wide) != 1:
        raise UserError(
            f"{path} must hold one array of features and the labels, got {sorted(rows)}"
        )
    matrix = stored.pop(wide[0])
    matrix = matrix.reshape(len(matrix), -1)
    names = [f"{wide[0]}[{j}]" for j in range(matrix.shape[1])]
    return pd.concat([pd.DataFrame(matrix, columns=names), pd.DataFrame(stored)], axis=1)
