"""Tables in NPZ files."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.errors import UserError, listed, quoted, short


def read_arrays(path: Path) -> pd.DataFrame:
    """One array with a row a sample becomes the features, vectors become single columns."""
    if not zipfile.is_zipfile(path):
        raise UserError(f"{path} is not a valid NPZ file: write it with numpy.savez")
    stored = {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            try:
                array = archive[name]
            except ValueError as error:
                raise UserError(
                    f"the array {quoted(name)} of {path} cannot be read ({short(error)}): "
                    "store text and numbers, not Python objects"
                ) from error
            if array.dtype.kind == "S":
                array = np.char.decode(array)
            if array.dtype.kind == "U" and not _is_text(array):
                raise UserError(f"the array {quoted(name)} of {path} holds no text")
            stored[name] = array
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


def _is_text(array: Any) -> bool:
    """Whether its letters exist: NumPy looks at none of them."""
    letters = np.ascontiguousarray(array.ravel(), dtype=array.dtype.newbyteorder("="))
    codes = letters.view(np.uint32)
    return not ((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))).any()
