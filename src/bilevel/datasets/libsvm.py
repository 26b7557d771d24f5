"""LIBSVM's text files: a row a line, "label index:value index:value ..."."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bilevel.errors import UserError


def read_libsvm(path: Path, features: int) -> tuple[Any, Any]:
    """The rows, dense in single precision, and the labels as they stand there.

    Args:
        path: a text file, or one that ends in .bz2.
        features: how many there are; indices count from 1.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "rows")
        ...     _ = path.write_text("-1 1:0.5\\n+1 2:2 3:1\\n")
        ...     read_libsvm(path, features=3)
        (array([[0.5, 0. , 0. ],
               [0. , 2. , 1. ]], dtype=float32), array([-1,  1]))
    """
    from sklearn.datasets import load_svmlight_file

    try:
        # 64 bits for the labels' sake, which are read in the same precision.
        X, labels = load_svmlight_file(str(path), n_features=features, zero_based=False)
        return X.toarray().astype(np.float32), labels.astype(np.int64)
    except (ValueError, OSError, EOFError, OverflowError) as error:
        raise UserError(
            f"{path} is not a whole LIBSVM file of {features} features: {error}"
        ) from error
