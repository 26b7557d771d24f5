"""Array code: functions that Python runs on tensors as they are, and that numba compiles.

A method in array code says what a step does in the verbs below. Run by Python, `oracle` is an
oracle and `k` does not matter: what was drawn belongs to one step. Compiled
(`bilevel.kernels.stretches`), it is a `Known`, a model's arrays with its functions of them, and
many steps are drawn at once. What a verb returns is then valid until the same verb is called
again. All verbs of a step are asked at the same x. This file needs no numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Function = Callable[..., Any]
Kind = TypeVar("Kind", bound=Function)

written: dict[Function, Function] = {}  # what array code may call, and what numba sees of it


def array_code(function: Kind) -> Kind:
    """A function that other array code may call."""
    written[function] = function
    return function


# What compiled code has in an oracle, whatever the model: arrays for what the verbs find.
SHARED = ("g", "Hv", "Jv", "f_x", "f_y", "c")


class Known(NamedTuple):
    """A model in arrays. Its functions write what they find into the arrays that they are given.

    Their first argument p has the fields of `kind`, then come x, y and perhaps v. Rows are an array
    of row numbers, and the results are those of these rows alone, without the ridge below.

    Args:
        kind: a named tuple's class, with the fields `SHARED` and the model's own.
        inner: (p, x, y, v, rows, g, Hv, Jv): ∇y g, ∇²y g v and ∇x∇y g v.
        slope: (p, x, y, rows, g): the first of them.
        hessian: (p, x, y, v, rows, Hv): the second.
        cross: (p, x, y, v, rows, Jv): the third.
        outer: (p, x, y, rows, f_x, f_y): ∇x f and ∇y f.
        ridge: (p, x, c): c, where g has ½ Σ_a c_a(x) y_a² beside its rows.
        add_ridge: (p, c, y, v, to) adds Σ_a ∂c_a(x)/∂x y_a v_a to a covector of x.
        own: () -> the model's own fields, data and room to work in, for one stretch.
    """

    kind: Any
    inner: Function
    slope: Function
    hessian: Function
    cross: Function
    outer: Function
    ridge: Function
    add_ridge: Function
    own: Function


class Block(NamedTuple):
    """A block of rows: the rows, its number, and its share of all rows."""

    rows: Any
    number: int
    share: float


class Draws(NamedTuple):
    """The rows of f and of g that a step uses."""

    inner: Any
    outer: Any


class Chains(NamedTuple):
    """The batches of each kind that an implicit estimate uses."""

    inner: Any
    outer: Any
    hessian: Any
    cross: Any


class Triple(NamedTuple):
    """The points of most single loops, or their directions."""

    x: Any
    y: Any
    v: Any


# The verbs, as Python runs them.


def inner(oracle: Any, x: Any, y: Any, v: Any, rows: Any) -> tuple[Any, Any, Any]:
    """∇y g, ∇²y g v and ∇x∇y g v: in most oracles they share the passes over the rows."""
    around = oracle.linearize(x, y, rows)
    Hv, Jv = around.both(v)
    return around.gradient(), Hv, Jv


def sampled(oracle: Any, x: Any, y: Any, v: Any, rows: Any) -> tuple[Any, Any, Any]:
    """The same of the rows alone, without a penalty that the model knows; the last one pulled."""
    g, Hv, Jv = inner(oracle, x, y, v, rows)
    Jv, beside = oracle.pull(x, Jv), oracle.ridge(x)
    if beside is None:
        return g, Hv, Jv
    c = beside.c
    return g - c * y, Hv - c * v, Jv - beside.of_x(c * y * v)


def ridged(oracle: Any, x: Any, y: Any, v: Any, g: Any, Hv: Any, Jv: Any) -> tuple[Any, Any, Any]:
    """What `sampled` left out, added again."""
    beside = oracle.ridge(x)
    if beside is None:
        return g, Hv, Jv
    c = beside.c
    return g + c * y, Hv + c * v, Jv + beside.of_x(c * y * v)


def slope(oracle: Any, x: Any, y: Any, rows: Any) -> Any:
    """∇y g."""
    return oracle.inner(x, y, rows).gradient()


def hessian(oracle: Any, x: Any, y: Any, v: Any, rows: Any) -> Any:
    """∇²y g v."""
    return oracle.linearize(x, y, rows).hvp(v)


def cross(oracle: Any, x: Any, y: Any, v: Any, rows: Any) -> Any:
    """∇x∇y g v."""
    return oracle.linearize(x, y, rows).cross(v)


def outer(oracle: Any, x: Any, y: Any, rows: Any) -> tuple[Any, Any]:
    """∇x f and ∇y f."""
    found: tuple[Any, Any] = oracle.outer(x, y, rows).gradient()
    return found


def pull(oracle: Any, x: Any, covector: Any) -> Any:
    """The derivative in x that a covector stands for."""
    return oracle.pull(x, covector)


def number(numbers: Any, k: int, j: int) -> Any:
    """The j-th of the method's own numbers in step k."""
    return numbers[k][j]


def batch(drawn: Any, k: int) -> Any:
    """The rows of step k."""
    return drawn


def count(drawn: Any, k: int) -> int:
    """How many batches step k has."""
    return len(drawn)


def batch_of(drawn: Any, k: int, t: int) -> Any:
    """The rows of batch t of step k."""
    return drawn[t]


def block(drawn: Any, k: int) -> Any:
    """The `Block` of step k."""
    return drawn


# Sums. Compiled code makes no new arrays for them: it overwrites the first argument, which must not
# be used again. Take `own` of a point of `now` first, and of anything else that must stay.


def own(vector: Any) -> Any:
    """A copy, if it is needed."""
    return vector


def minus(a: Any, b: Any) -> Any:
    """a − b."""
    return a - b


def plus(a: Any, b: Any) -> Any:
    """a + b."""
    return a + b


def moved(point: Any, direction: Any, rate: Any) -> Any:
    """p − rate d."""
    return point - rate * direction


def scaled(a: Any, factor: Any) -> Any:
    """The factor times a."""
    return factor * a


def saga(value: Any, table: Any, mean: Any, i: int, share: float) -> Any:
    """q_i(now) − q_i(kept) + the mean of what is kept; both tables are then updated."""
    change, whole = value - table[i], mean[0]
    found = whole + change
    table[i] = value
    # By the change alone: no pass over the blocks.
    mean[0] = whole + share * change
    return found
