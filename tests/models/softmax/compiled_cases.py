"""Problems for the compiled kernels of softmax regression.

Kernels are compiled for each number of classes, precision and layout, so these vary little here;
everything else is drawn by hypothesis.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import settings
from hypothesis import strategies as st

import bilevel
import bilevel.oracles
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle
from bilevel.models.softmax.oracle import SoftmaxOracle

CLASSES = 5
PENALTIES = (bilevel.Ridge(0.01), bilevel.PerFeature(), bilevel.PerWeight())
WEIGHTS = {
    "learned": lambda rng, n: bilevel.SigmoidWeights(),
    "given": lambda rng, n: torch.from_numpy(rng.random(n)),
    "none": lambda rng, n: None,
}
LAYOUTS = ("dense", "background", "wide")
reproducible = settings(derandomize=True, database=None, deadline=None, max_examples=25)
seeds, penalties = st.integers(0, 10**6), st.sampled_from(PENALTIES)
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def matrix(layout, rng, n, dtype=np.float64):
    """Dense; four fifths of it the same value in each column; or sparse with many features."""
    p = 14_000 if layout == "wide" else 23
    if layout == "wide":
        found = scipy.sparse.random_array((n, p), density=0.002, rng=rng, dtype=dtype).tocsr()
        return scipy.sparse.csr_array(found)
    X = rng.standard_normal((n, p))
    if layout == "background":
        X = np.where(rng.random((n, p)) < 0.8, rng.standard_normal(p), X)
    return X.astype(dtype)


def problem_of(
    layout, seed, penalty=PENALTIES[0], n=151, dtype=np.float64, weights=WEIGHTS["learned"]
):
    rng = np.random.default_rng(seed)
    train, validation = matrix(layout, rng, n, dtype), matrix(layout, rng, 40, dtype)
    return bilevel.softmax_problem(
        (train, rng.integers(CLASSES, size=n)),
        (validation, rng.integers(CLASSES, size=40)),
        weights=weights(rng, n),
        penalty=penalty,
        classes=CLASSES,
    )


def oracles_of(problem):
    return SoftmaxOracle(problem.model.form), CompiledSoftmaxOracle(problem.model.form)


def vectors(oracle, seed):
    """x, y and v."""
    rng = np.random.default_rng(seed + 1)
    sizes = oracle.x_size, oracle.y_size, oracle.y_size
    return [torch.from_numpy(rng.standard_normal(size)).to(oracle.dtype) for size in sizes]


def rows_of(seed, n, *sizes):
    rng = np.random.default_rng(seed + 2)
    return [torch.from_numpy(rng.choice(n, size, replace=False)) for size in sizes]


def assert_near(found, truth, tolerance, name=""):
    assert found.shape == truth.shape, name
    assert found.dtype == truth.dtype, name
    error = torch.linalg.vector_norm(found - truth)
    assert error <= tolerance * torch.linalg.vector_norm(truth), (name, float(error))
