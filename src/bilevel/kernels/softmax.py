"""Softmax regression: steps, Neumann factors and what they are made of, on batches of rows.

Batch t is rows[starts[t]:ends[t]]. `s` holds a weight for each of `rows`, over the batch size, P
their probabilities, and c the penalty's 2c_j for each feature j, (p, 1), or 2c_jk for each weight,
(p, C). W, r and what comes out are (p, C); inside they are laid out as `sizes` says, as P is.

Each kernel runs in one thread; where a batch is worth several, the caller splits its rows. Room is
allocated by the caller, too: `here` is laid out as W is, G the same and zero, and R has a row for
each row of a block. numba's own `np.zeros` would take a second to compile.
"""

from __future__ import annotations

from math import inf, log

from bilevel.kernels.exponential import exp
from bilevel.kernels.kernel import compiling, inner, kernel
from bilevel.kernels.products import dot, pull, push
from bilevel.kernels.registers import (
    closely,
    filled,
    item,
    largest,
    load,
    of_sizes,
    store,
    total,
    trimmed,
)

BLOCK = 128  # rows at a time, which stay in the cache between X W and X'R


@kernel
def look(X, rows, starts, ends, labels, Ws, here, P, out, sizes):
    """P_i = softmax(Z_i) and out_i = log Σ_k exp(Z_ik) − Z_ib, where Z = X Ws[t] in batch t."""
    compiling()
    classes = of_sizes(sizes)
    for t in range(len(ends)):
        a, b, W = starts[t], ends[t], Ws[t]
        if len(here) > 0:  # else its rows lie as they should
            lay_out(W, here, classes)
            W = here
        push(X, rows[a:b], W, P[a:b], classes)
        soften(P[a:b], rows[a:b], labels, out[a:b], classes)


@kernel
def descend(X, rows, starts, ends, labels, s, c, base, rates, W, here, G, R, path, sizes):
    """W ← (base − α_t c)∘W − α_t Σ_i s_i X_i'(P_i − Y_i), batch after batch.

    With base 1 these are gradient steps; with base 0 and a rate of −1 it is the gradient itself.
    The last W go to `path`, as many as it has room for.
    """
    compiling()
    classes = of_sizes(sizes)
    p, skipped = len(W), len(ends) - len(path)
    lay_out(W, here, classes)
    for t in range(len(ends)):
        # The rows of X in a block are still in the cache when X'R reads them again.
        for a in range(starts[t], ends[t], BLOCK):
            b = min(ends[t], a + BLOCK)
            push(X, rows[a:b], here, R, classes)
            errors(R, rows[a:b], labels, s[a:b], classes)
            pull(X, rows[a:b], R, G, classes)
        # Not pulled into W at once: many small terms would be rounded to the digits of W.
        for j in range(p):
            kept = base - rates[t] * coefficient(c, j, classes)
            w = kept * load(here, j, classes) - rates[t] * taken(G, j, classes)
            store(here, j, w, classes)
            if t >= skipped:
                store(path[t - skipped], j, w, closely(classes))


@kernel
def contract(
    X,
    rows,
    starts,
    ends,
    labels,
    s,
    Ws,
    there,
    P,
    c,
    base,
    rates,
    weights,
    r,
    here,
    G,
    R,
    sums,
    along,
    out,
    sizes,
):
    """r ← (base − α_t c)∘r − α_t Σ_i s_i X_i'(diag P_i − P_i P_i')X_i r, batch after batch.

    With base 1 these are Neumann factors I − αH; with base 0 and a rate of −1 it is H r itself.
    P is known, or that at the last of `Ws`, then at the one before, or always at the only one; then
    P is room for a block, and `there` for W. along_i becomes the slope of row i's loss along r.
    Before each step w_t r is added to sums[0], and w_t W∘r to sums[1], where there are such sums.
    """
    compiling()
    classes = of_sizes(sizes)
    p, apart, known = len(r), closely(classes), len(Ws) == 0
    lay_out(r, here, classes)
    for t in range(len(ends)):
        if t < len(Ws):
            lay_out(Ws[len(Ws) - 1 - t], there, classes)
        for a in range(starts[t], ends[t], BLOCK):
            b = min(ends[t], a + BLOCK)
            some, Q = rows[a:b], P[a:b] if known else P
            if not known:  # here, and not for all rows before: the block is in the cache now
                push(X, some, there, Q, classes)
                soften(Q, some, labels, s[:0], classes)
            push(X, some, here, R, classes)
            spreads(R, Q, some, labels, s[a:b], along[a:b], classes)
            pull(X, some, R, G, classes)
        for j in range(p):
            before = load(here, j, classes)
            # Before r moves on: the sums hold r as this step found it.
            if len(sums) > 0:
                more = weights[t] * before
                store(sums[0], j, load(sums[0], j, apart) + more, apart)
                if len(sums) > 1:
                    more = more * load(there, j, classes)
                    store(sums[1], j, load(sums[1], j, apart) + more, apart)
            kept = base - rates[t] * coefficient(c, j, classes)
            store(here, j, kept * before - rates[t] * taken(G, j, classes), classes)
    for j in range(p):
        store(out, j, load(here, j, classes), apart)


@kernel
def multiply(X, first, last, R, c, V, out, sizes):
    """out_i = X_i R + c_i V_i for the rows from `first` to `last`; without c, the first term."""
    compiling()
    classes = of_sizes(sizes)
    for i in range(first, last):
        z = dot(X, i, R, classes)
        if len(c) > 0:
            z += coefficient(c, i, classes) * load(V, i, classes)
        store(out, i, z, classes)


@inner
def exponentials(z):
    """exp(z − max z), its sum, and max z."""
    z = trimmed(z, -inf)  # the zeros behind the last class must not be the greatest
    top = largest(z)
    # Zero again: `exp` leaves 2^-126 there, and products with that are denormal, which is slow.
    e = trimmed(exp(z - top), 0)
    return e, total(e), top


@inner
def soften(P, rows, labels, losses, classes):
    """P_t, which is X_t W, becomes its softmax; and the losses, if there is room for them."""
    for t in range(len(rows)):
        own = P[t, labels[rows[t]]]
        e, whole, top = exponentials(load(P, t, classes))
        if len(losses) > 0:
            losses[t] = log(whole) - (own - top)
        store(P, t, e * (1 / whole), classes)


@inner
def errors(R, rows, labels, s, classes):
    """R_t, which is X_t W, becomes s_t (softmax(X_t W) − Y_t)."""
    for t in range(len(rows)):
        e, whole, _ = exponentials(load(R, t, classes))
        # One division a row, and s on the way: the row is written once.
        store(R, t, e * (s[t] / whole), classes)
        R[t, labels[rows[t]]] -= s[t]


@inner
def spreads(R, P, rows, labels, s, along, classes):
    """R_t, which is U_t = X_t V, becomes s_t (P_t∘U_t − P_t (P_t·U_t)); and the slopes along V."""
    for t in range(len(rows)):
        p, u = load(P, t, classes), load(R, t, classes)
        # (diag P − PP')U without its matrix: C numbers per row, not C².
        mean = total(p * u)
        # ∂/∂W of log Σ exp(Z) − Z_b along V is P·U − U_b: no pass of its own is needed.
        along[t] = mean - R[t, labels[rows[t]]]
        store(R, t, s[t] * (p * u - mean * p), classes)


@inner
def coefficient(c, j, classes):
    """Of row j, a number or a row; decided here, so that a kernel is compiled once for both."""
    if c.shape[1] == 1:
        return filled(c, item(c, j), classes)
    return load(c, j, closely(classes))


@inner
def taken(G, j, classes):
    """A row of the sums, which are reset to zero."""
    g = load(G, j, classes)
    store(G, j, filled(G, 0, classes), classes)
    return g


@inner
def lay_out(W, here, classes):
    """A copy of W, with rows as `classes` lays them out."""
    for j in range(len(W)):
        store(here, j, load(W, j, closely(classes)), classes)
