"""`softmax.descend` and `contract` on small batches of sparse rows with many features.

A step touches few features, but the penalty shrinks all of them. Here a feature shrinks when it is
next read: `seen[j]` is the step that it is up to date with. A step then costs its non-zeros only.

W, r and sums are written to. Arguments are as in `bilevel.kernels.softmax`, and rows lie close;
`seen` begins with zeros, `every` lists all features, and R has room for the longest batch.
"""

from __future__ import annotations

from bilevel.kernels.kernel import compiling, inner, kernel
from bilevel.kernels.products import pull, push
from bilevel.kernels.registers import filled, item, load, of_sizes, store
from bilevel.kernels.softmax import coefficient, errors, spreads


@kernel
def descend(X, rows, starts, ends, labels, s, c, rates, W, seen, every, R, sizes):
    """W ← W − α_t (Σ_i s_i X_i'(P_i − Y_i) + c∘W), batch after batch."""
    compiling()
    classes = of_sizes(sizes)
    nothing = W[:0]
    for t in range(len(ends)):
        some, own = rows[starts[t] : ends[t]], s[starts[t] : ends[t]]
        for i in some:
            touch(X[1], X[0][i], X[0][i + 1], t, seen, c, rates, rates, W, nothing, classes)
        push(X, some, W, R, classes)
        errors(R, some, labels, own, classes)
        for i in some:
            touch(X[1], X[0][i], X[0][i + 1], t + 1, seen, c, rates, rates, W, nothing, classes)
        # Into W at once: batches are small here, so that few terms are rounded to its digits.
        subtract(X, some, rates[t], R, W, classes)
    touch(every, 0, len(W), len(ends), seen, c, rates, rates, W, nothing, classes)


@kernel
def contract(
    X, rows, starts, ends, labels, s, P, c, rates, weights, r, sums, along, seen, every, R, sizes
):
    """r ← r − α_t H_t r, batch after batch; before each step w_t r is added to `sums`."""
    compiling()
    classes = of_sizes(sizes)
    for t in range(len(ends)):
        a, b = starts[t], ends[t]
        some = rows[a:b]
        for i in some:
            touch(X[1], X[0][i], X[0][i + 1], t, seen, c, rates, weights, r, sums, classes)
        push(X, some, r, R, classes)  # only these rows of r are up to date, and no other is read
        spreads(R, P[a:b], some, labels, s[a:b], along[a:b], classes)
        for i in some:
            touch(X[1], X[0][i], X[0][i + 1], t + 1, seen, c, rates, weights, r, sums, classes)
        subtract(X, some, rates[t], R, r, classes)
    touch(every, 0, len(r), len(ends), seen, c, rates, weights, r, sums, classes)


@inner
def subtract(X, rows, rate, R, W, classes):
    """R ← −αR, and W += X'R."""
    for t in range(len(rows)):
        store(R, t, -rate * load(R, t, classes), classes)
    pull(X, rows, R, W, classes)


@inner
def touch(columns, first, last, t, seen, c, rates, weights, W, sums, classes):
    """Bring the features columns[first:last] up to date with step t.

    Many features per call: inside, a call has some sixty arguments, as an array has seven.
    """
    for i in range(first, last):
        j = item(columns, i)
        if item(seen, j) == t:
            continue
        w, shrinks, power = load(W, j, classes), coefficient(c, j, classes), filled(W, 1, classes)
        # Powers first, then W: a step waits for one product of the step before, and not for three.
        if len(sums) > 0:
            series = filled(W, 0, classes)
            for k in range(seen[j], t):
                series += weights[k] * power
                power = power * (1 - rates[k] * shrinks)
            store(sums, j, load(sums, j, classes) + series * w, classes)
        else:
            for k in range(seen[j], t):
                power = power * (1 - rates[k] * shrinks)
        store(W, j, power * w, classes)
        seen[j] = t
