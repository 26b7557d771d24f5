"""Whole loops on small batches of sparse rows with many features, in one call.

A step touches few features, but the penalty shrinks all. Here, a feature shrinks when it is next
read: `seen[j]` is the step up to which it is done. A step then costs its non-zeros only.

`rows` holds the batches one after another, and batch t ends before `ends[t]`; else as in
`bilevel.kernels.chains`. W, r and total are written to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bilevel.kernels.kernel import kernel
from bilevel.kernels.lanes import item, load, store
from bilevel.kernels.products import coefficient, pull
from bilevel.kernels.softmax import ERRORS, SPREADS, residuals, soften


@kernel
def descend(
    X: Any, rows: Any, ends: Any, labels: Any, s: Any, c: Any, rate: Any, W: Any, classes: Any
) -> None:
    """`descend` with one rate."""
    R, along = np.empty((_longest(ends), len(classes[1])), W.dtype), s[:0]
    seen = np.zeros(len(W), np.int32)
    a = 0
    for t in range(len(ends)):
        b = ends[t]
        _catch_up(X, rows[a:b], t, seen, c, rate, W, classes)
        residuals(ERRORS, X, rows[a:b], labels, s[a:b], R, W, along, R, classes)
        _catch_up(X, rows[a:b], t + 1, seen, c, rate, W, classes)
        _subtract(X, rows[a:b], rate, R, W, classes)
        a = b
    for j in range(len(W)):
        _shrink_row(W, j, len(ends) - seen[j], c, rate, classes)


@kernel
def contract(
    X: Any,
    rows: Any,
    ends: Any,
    labels: Any,
    s: Any,
    c: Any,
    rate: Any,
    W: Any,
    r: Any,
    total: Any,
    classes: Any,
) -> None:
    """`contract`, where r and its sums wait for the same step."""
    P = np.empty((_longest(ends), len(classes[1])), W.dtype)
    R, along = np.empty_like(P), np.empty(len(P), W.dtype)
    seen = np.zeros(len(W), np.int32)
    a = 0
    for t in range(len(ends)):
        b = ends[t]
        soften(X, rows[a:b], W, P, classes)
        _sum_up(X, rows[a:b], t, seen, c, rate, r, total, classes)
        residuals(SPREADS, X, rows[a:b], labels, s[a:b], P, r, along, R, classes)
        _sum_up(X, rows[a:b], t + 1, seen, c, rate, r, total, classes)
        _subtract(X, rows[a:b], rate, R, r, classes)
        pull(X, rows[a:b], R, total, classes)  # which has the r of this step already
        a = b
    for j in range(len(W)):
        _sum_row(r, total, j, len(ends) - seen[j], c, rate, classes)


@njit(nogil=True)
def _longest(ends: Any) -> Any:
    longest, a = 0, 0
    for b in ends:
        longest, a = max(longest, b - a), b
    return longest


@njit(nogil=True)
def _subtract(X: Any, rows: Any, rate: Any, R: Any, W: Any, classes: Any) -> None:
    """R ← −αR, and W += X'R."""
    for t in range(len(rows)):
        store(R, t, -rate * load(R, t, classes))
    pull(X, rows, R, W, classes)


@njit(nogil=True)
def _catch_up(
    X: Any, rows: Any, t: int, seen: Any, c: Any, rate: Any, W: Any, classes: Any
) -> None:
    for i in rows:
        for k in range(X[0][i], X[0][i + 1]):
            j = item(X[1], k)
            if seen[j] < t:
                _shrink_row(W, j, t - seen[j], c, rate, classes)
                seen[j] = t


@njit(nogil=True)
def _sum_up(
    X: Any, rows: Any, t: int, seen: Any, c: Any, rate: Any, r: Any, total: Any, classes: Any
) -> None:
    for i in rows:
        for k in range(X[0][i], X[0][i + 1]):
            j = item(X[1], k)
            if seen[j] < t:
                _sum_row(r, total, j, t - seen[j], c, rate, classes)
                seen[j] = t


@njit(nogil=True)
def _shrink_row(W: Any, j: int, times: int, c: Any, rate: Any, classes: Any) -> None:
    if times > 0:
        kept = 1 - rate * coefficient(c, j, classes)
        power = kept
        for _ in range(times - 1):
            power = power * kept
        store(W, j, power * load(W, j, classes))


@njit(nogil=True)
def _sum_row(r: Any, total: Any, j: int, times: int, c: Any, rate: Any, classes: Any) -> None:
    """r is multiplied by `kept` so often, and summed each time."""
    if times > 0:
        kept = 1 - rate * coefficient(c, j, classes)
        power = kept
        series = kept
        for _ in range(times - 1):
            power = power * kept
            series = series + power
        row = load(r, j, classes)
        store(total, j, load(total, j, classes) + series * row)
        store(r, j, power * row)
