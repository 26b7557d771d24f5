"""X W and X'R, with registers of 32 and of 64 bytes, whatever this processor has."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..truth import forked

# In a process of its own: numba keeps a type for good, and a row's depends on the width.
PROGRAM = """
import sys

import numpy as np
from numba import njit

from bilevel.kernels import registers

registers._WIDE = sys.argv[1] == "wide"

from bilevel.kernels.kernel import OPTIONS
from bilevel.kernels.products import pull, push


@njit(**OPTIONS)
def both(X, rows, W, Z, R, G, sizes):
    classes = registers.of_sizes(sizes)
    push(X, rows, W, Z, classes)
    pull(X, rows, R, G, classes)


rng = np.random.default_rng(0)
for classes, dtype in ((3, np.float32), (10, np.float32), (33, np.float32), (10, np.float64)):
    sizes = registers.padded(classes, np.dtype(dtype).itemsize)
    length = len(sizes[1])
    for count in (0, 1, 3, 4, 7, 8, 9, 12, 21):
        X = rng.standard_normal((30, 13)).astype(dtype)
        rows = rng.choice(30, count)
        W, R, G = (np.zeros((n, length), dtype) for n in (13, count, 13))
        for matrix in (W, R, G):
            matrix[:, :classes] = rng.standard_normal((len(matrix), classes))
        Z, was = np.full((count, length), np.nan, dtype), G.copy()
        both(X, rows, W, Z, R, G, sizes)
        close = 1e-5 if dtype is np.float32 else 1e-13
        np.testing.assert_allclose(Z, X[rows] @ W, rtol=close, atol=close)
        np.testing.assert_allclose(G, was + X[rows].T @ R, rtol=close, atol=close)
print(length)
"""


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_products_of_any_number_of_rows_are_numpys(width: str, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = forked.begin(tmp_path, "program.py", width).end()
    assert (ended.code, ended.out) == (0, "12\n"), ended.err
