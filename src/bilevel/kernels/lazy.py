"""`softmax.descend` and `contract` on small batches of sparse rows with many features.

A step touches few features, but the penalty shrinks all of them. Here a feature shrinks when it is
next read: `seen[j]` is the step that it is up to date with. A step then costs its non-zeros only.

W, r and sums are overwritten. Arguments are as in `bilevel.kernels.softmax`, and rows lie close;
`seen` starts with zeros, and R has room for the longest batch.
"""

from __future__ import annotations

from typing import Any

from bilevel.kernels.kernel import compiling, inner, kernel
from bilevel.kernels.products import pull, push
from bilevel.kernels.registers import item, load, store
from bilevel.kernels.softmax import coefficient, errors, spreads


@kernel
def descend(
    X: Any,
    rows: Any,
    starts: Any,
    ends: Any,
    labels: Any,
    s: Any,
    c: Any,
    rates: Any,
    W: Any,
    seen: Any,
    R: Any,
    classes: Any,
) -> None:
    """W ← W − α_t (Σ_i s_i X_i'(P_i − Y_i) + c∘W), batch after batch."""
    compiling()
    # An array without rows stands for "no sums".
    nothing = W[:0]
    for t in range(len(ends)):
        a, b = starts[t], ends[t]
        # What this batch reads is brought up to date first: `push` then sees W as dense steps
        # would have left it.
        touch(X, rows[a:b], t, seen, c, rates, rates, W, nothing, classes)
        push(X, rows[a:b], W, R, classes)
        errors(R, rows[a:b], labels, s[a:b], classes)
        # The penalty of this step before its gradient, as in (1 − α c)∘W − α X'R: both are
        # taken at the same W.
        touch(X, rows[a:b], t + 1, seen, c, rates, rates, W, nothing, classes)
        subtract(X, rows[a:b], rates[t], R, W, classes)
    # Features that the last batches did not touch.
    for j in range(len(W)):
        catch_up(j, len(ends), seen, c, rates, rates, W, nothing, classes)


@kernel
def contract(
    X: Any,
    rows: Any,
    starts: Any,
    ends: Any,
    labels: Any,
    s: Any,
    P: Any,
    c: Any,
    rates: Any,
    weights: Any,
    r: Any,
    sums: Any,
    along: Any,
    seen: Any,
    R: Any,
    classes: Any,
) -> None:
    """r ← r − α_t H_t r, batch after batch; before each step w_t r is added to `sums`."""
    compiling()
    for t in range(len(ends)):
        a, b = starts[t], ends[t]
        # As in `descend`: what is read up to date first, then the penalty, then the rest of H r.
        touch(X, rows[a:b], t, seen, c, rates, weights, r, sums, classes)
        push(X, rows[a:b], r, R, classes)
        spreads(R, P[a:b], rows[a:b], labels, s[a:b], along[a:b], classes)
        touch(X, rows[a:b], t + 1, seen, c, rates, weights, r, sums, classes)
        subtract(X, rows[a:b], rates[t], R, r, classes)
    for j in range(len(r)):
        catch_up(j, len(ends), seen, c, rates, weights, r, sums, classes)


@inner
def subtract(X: Any, rows: Any, rate: Any, R: Any, W: Any, classes: Any) -> None:
    """R ← −αR, and W += X'R."""
    for t in range(len(rows)):
        store(R, t, -rate * load(R, t, classes), classes)
    pull(X, rows, R, W, classes)


@inner
def touch(
    X: Any,
    rows: Any,
    t: int,
    seen: Any,
    c: Any,
    rates: Any,
    weights: Any,
    W: Any,
    sums: Any,
    classes: Any,
) -> None:
    """Bring the features of these rows up to date with step t."""
    for i in rows:
        for k in range(X[0][i], X[0][i + 1]):
            catch_up(item(X[1], k), t, seen, c, rates, weights, W, sums, classes)


@inner
def catch_up(
    j: int,
    t: int,
    seen: Any,
    c: Any,
    rates: Any,
    weights: Any,
    W: Any,
    sums: Any,
    classes: Any,
) -> None:
    if seen[j] == t:
        return
    w, shrinks = load(W, j, classes), coefficient(c, j, classes)
    # Step by step, not by a power: the rates may differ, and each r on the way is summed.
    if len(sums) > 0:
        whole = load(sums, j, classes)
        for k in range(seen[j], t):
            whole += weights[k] * w
            w = w - rates[k] * shrinks * w
        store(sums, j, whole, classes)
    else:
        for k in range(seen[j], t):
            w = w - rates[k] * shrinks * w
    store(W, j, w, classes)
    seen[j] = t
