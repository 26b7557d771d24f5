"""Linear models in array code: their arrays, penalties and row weights.

The weight s_i of a row is 1, given, or σ(x_i).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from bilevel.kernels.array_code import SHARED, array_code


class Data(NamedTuple):
    """A linear model in arrays.

    Args:
        X, b, X_outer, b_outer: the rows of both losses, with b in {0, 1}, a class or any number.
        loss: for one column, 0 is logistic, 1 squared.
        sizes: for several columns; see `bilevel.kernels.registers`.
        weights: given ones, or empty.
        logits: how many entries of x are logits of weights; its penalties come after them.
        penalty: twice the factor in front of the penalties' sum.
        owner: for each weight of y, its entry in x's penalties; empty if x holds none.
    """

    X: Any
    b: Any
    X_outer: Any
    b_outer: Any
    loss: int
    sizes: Any
    weights: Any
    logits: int
    penalty: Any
    owner: Any


def kind_of(module: str, *room: str) -> Any:
    """A named tuple's class for a model in arrays: e has e^x of each penalty.

    Args:
        module: where it is kept, under the name Kind: numba's files on disk look for it there.
        room: the names of further work arrays.
    """
    return namedtuple("Kind", (*SHARED, *Data._fields, "e", *room), module=module)


@array_code
def weight(p: Any, x: Any, row: int) -> Any:
    """s of a row."""
    s = one = x.dtype.type(1)
    if p.logits > 0:
        s = one / (one + np.exp(-x[row]))
    elif len(p.weights) > 0:
        s = p.weights[row]
    return s


@array_code
def clear(vector: Any) -> None:
    """Zeros."""
    for a in range(len(vector)):
        vector[a] = 0


def ridge(p: Any, x: Any, c: Any) -> None:
    """2c, for each weight."""
    if len(p.owner) == 0:
        for a in range(len(c)):
            c[a] = p.penalty[0]
    else:
        for j in range(len(p.e)):
            p.e[j] = p.penalty[0] * np.exp(x[p.logits + j])
        for a in range(len(c)):
            c[a] = p.e[p.owner[a]]


def add_ridge(p: Any, c: Any, y: Any, v: Any, to: Any) -> None:
    """c∘y∘v, each entry added to the penalty that owns it."""
    for a in range(len(p.owner)):
        to[p.logits + p.owner[a]] += c[a] * y[a] * v[a]
