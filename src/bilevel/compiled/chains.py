"""Whole loops on small batches in one call: D gradient steps, or Q Neumann factors.

`rows` holds the batches one after another, and batch t ends before `ends[t]`; `s` goes with `rows`.
`c` holds the penalty's 2c_j for each feature j, or 2c_jk for each weight.

On sparse rows with many features, a step touches few of them, but the penalty shrinks all. The
`lazy` forms shrink a feature when it is next read: `seen[j]` is the step up to which it is done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bilevel.compiled.kernel import kernel
from bilevel.compiled.lanes import item, load, store
from bilevel.compiled.products import coefficient, pull
from bilevel.compiled.softmax import errors, probabilities, spreads


@kernel
def descend(
    X: Any, rows: Any, ends: Any, labels: Any, s: Any, c: Any, rates: Any, W: Any, classes: Any
) -> None:
    """W ← W − α_t (Σ_i s_i X_i'(P_i − Y_i) + 2c∘W), batch after batch."""
    R = np.empty((_longest(ends), len(classes[1])), W.dtype)
    a = 0
    for t in range(len(ends)):
        b = ends[t]
        errors(X, rows[a:b], labels, s[a:b], W, R, classes)
        _shrink(W, c, rates[t], classes)
        _subtract(X, rows[a:b], rates[t], R, W, classes)
        a = b


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
    sums: Any,
    classes: Any,
) -> None:
    """r ← r − η H(B_t) r, batch after batch, and sums += r after each."""
    P = np.empty((_longest(ends), len(classes[1])), W.dtype)
    R, along = np.empty_like(P), np.empty(len(P), W.dtype)
    a = 0
    for t in range(len(ends)):
        b = ends[t]
        probabilities(X, rows[a:b], W, P, classes)
        spreads(X, rows[a:b], labels, P, s[a:b], r, along, R, classes)
        _shrink(r, c, rate, classes)
        _subtract(X, rows[a:b], rate, R, r, classes)
        for j in range(len(r)):
            store(sums, j, load(sums, j, classes) + load(r, j, classes))
        a = b


@kernel
def descend_lazily(
    X: Any, rows: Any, ends: Any, labels: Any, s: Any, c: Any, rate: Any, W: Any, classes: Any
) -> None:
    """`descend` with one rate."""
    R = np.empty((_longest(ends), len(classes[1])), W.dtype)
    seen = np.zeros(len(W), np.int32)
    a = 0
    for t in range(len(ends)):
        b = ends[t]
        _catch_up(X, rows[a:b], t, seen, c, rate, W, classes)
        errors(X, rows[a:b], labels, s[a:b], W, R, classes)
        _catch_up(X, rows[a:b], t + 1, seen, c, rate, W, classes)
        _subtract(X, rows[a:b], rate, R, W, classes)
        a = b
    for j in range(len(W)):
        _shrink_row(W, j, len(ends) - seen[j], c, rate, classes)


@kernel
def contract_lazily(
    X: Any,
    rows: Any,
    ends: Any,
    labels: Any,
    s: Any,
    c: Any,
    rate: Any,
    W: Any,
    r: Any,
    sums: Any,
    classes: Any,
) -> None:
    """`contract`, where r and its sums wait for the same step."""
    P = np.empty((_longest(ends), len(classes[1])), W.dtype)
    R, along = np.empty_like(P), np.empty(len(P), W.dtype)
    seen = np.zeros(len(W), np.int32)
    a = 0
    for t in range(len(ends)):
        b = ends[t]
        probabilities(X, rows[a:b], W, P, classes)
        _sum_up(X, rows[a:b], t, seen, c, rate, r, sums, classes)
        spreads(X, rows[a:b], labels, P, s[a:b], r, along, R, classes)
        _sum_up(X, rows[a:b], t + 1, seen, c, rate, r, sums, classes)
        _subtract(X, rows[a:b], rate, R, r, classes)
        pull(X, rows[a:b], R, sums, classes)  # which has the r of this step already
        a = b
    for j in range(len(W)):
        _sum_row(r, sums, j, len(ends) - seen[j], c, rate, classes)


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
def _shrink(W: Any, c: Any, rate: Any, classes: Any) -> None:
    for j in range(len(W)):
        store(W, j, (1 - rate * coefficient(c, j, classes)) * load(W, j, classes))


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
    X: Any, rows: Any, t: int, seen: Any, c: Any, rate: Any, r: Any, sums: Any, classes: Any
) -> None:
    for i in rows:
        for k in range(X[0][i], X[0][i + 1]):
            j = item(X[1], k)
            if seen[j] < t:
                _sum_row(r, sums, j, t - seen[j], c, rate, classes)
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
def _sum_row(r: Any, sums: Any, j: int, times: int, c: Any, rate: Any, classes: Any) -> None:
    """r is multiplied by `kept` so often, and summed each time."""
    if times > 0:
        kept = 1 - rate * coefficient(c, j, classes)
        power = kept
        series = kept
        for _ in range(times - 1):
            power = power * kept
            series = series + power
        row = load(r, j, classes)
        store(sums, j, load(sums, j, classes) + series * row)
        store(r, j, power * row)
