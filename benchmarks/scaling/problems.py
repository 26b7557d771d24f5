"""Random softmax problems of any size: dense hyper-cleaning, sparse per-feature penalties."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch

import bilevel

NON_ZEROS = 40  # a sparse row, about as many as a short message has words
# So little that conjugate gradients have something to do at every step.
RIDGE, LOG_PENALTY = 1e-5, -5.0


def problem(data: str, rows: int, features: int, classes: int, validation: int) -> bilevel.Problem:
    """Gaussian rows with a weight each, or rows of word counts with a penalty a feature."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(classes, size=count) for count in (rows, validation)]
    make = dense_rows if data == "dense" else sparse_rows
    train, held_out = [(make(rng, len(b), features), b) for b in labels]
    if data == "dense":
        weights, penalty = bilevel.SigmoidWeights(), bilevel.Ridge(RIDGE)
        return bilevel.softmax_problem(
            train, held_out, classes=classes, weights=weights, penalty=penalty
        )
    x0 = torch.full((features,), LOG_PENALTY)
    return bilevel.softmax_problem(
        train, held_out, classes=classes, penalty=bilevel.PerFeature(), x0=x0
    )


def dense_rows(rng: np.random.Generator, rows: int, features: int) -> Any:
    """Columns from the size of 1 down to a hundredth."""
    scales = np.geomspace(1.0, 0.01, features, dtype=np.float32)
    return rng.standard_normal((rows, features), dtype=np.float32) * scales


def sparse_rows(rng: np.random.Generator, rows: int, features: int) -> Any:
    """So many words a row, some of them often, most of them seldom; a word may come twice."""
    words = (features * rng.random(rows * NON_ZEROS) ** 2).astype(np.int64)
    values = np.full(rows * NON_ZEROS, NON_ZEROS**-0.5, np.float32)
    starts = np.arange(0, rows * NON_ZEROS + 1, NON_ZEROS)
    found = scipy.sparse.csr_array((values, words, starts), shape=(rows, features))
    found.sum_duplicates()
    return found
