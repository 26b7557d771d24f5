"""Functions joined into one text do what the calls do."""

from __future__ import annotations

from collections import namedtuple
from types import FunctionType
from typing import Any

import pytest

from bilevel.kernels.pasting import Paster

Pair = namedtuple("Pair", "a b c")
kind = Pair


def same(value: Any) -> Any:
    return value


def grown(values: Any, by: Any) -> Any:
    for i in range(len(values)):
        values[i] += by
    return values


def early(n: int) -> int:
    if n > 1:
        return n
    return -n


def noted(log: Any, n: int) -> int:
    log.append(n)
    return n + 1


def both(p: Any, k: int) -> tuple[Any, Any]:
    a, c = p.a, p.c
    a[0] += k
    return c, a


def follows(p: Any, k: int) -> Any:
    n = p.b
    n = n + k
    return n


def pasted_twice(first: Any, second: Any) -> Any:
    oracle = kind(first, second)
    x, y = both(oracle, 1)
    y, x = both(oracle, 10)
    return x, y, follows(oracle, 3), follows(oracle, 4)


def names_set_again(first: Any, second: Any) -> Any:
    oracle = kind(first, second)
    v = oracle.b
    old = same(v)
    v = v + 1
    a, b = v, old
    a, b = b, a
    return old, v, a, b


def kept_in_a_loop(first: Any, second: Any) -> Any:
    oracle = kind(first, second)
    found = kept = last = 0
    for t in range(4):
        s = same(t)
        if t == 1:
            kept = same(s)
        if t > 0:
            found += 10 * last
        last = s
    return found, kept, last, oracle.b


def maybe(first: Any, second: Any) -> Any:
    oracle = kind(first, second)
    x = oracle.b if oracle.b > 0 else noted(oracle.a, 7)
    y = oracle.b < 0 and noted(oracle.a, 8)
    z = noted(oracle.a, noted(oracle.a, 20)) + early(noted(oracle.c, 1))
    return x, y, z, oracle.a, oracle.c, early(-5)


def as_a_whole(first: Any, second: Any) -> Any:
    oracle = kind(first, second)
    grown(oracle.a, oracle.b)
    return same(oracle)[0], oracle.c


CODE = {same, grown, early, noted, both, follows}


@pytest.mark.parametrize(
    "function", [pasted_twice, names_set_again, kept_in_a_loop, maybe, as_a_whole]
)
def test_pasted_is_called(function: Any) -> None:
    def find(of: Any, name: str) -> Any:
        return of.__globals__.get(name, paster)

    paster = Paster(find, lambda value: value in CODE, same, Pair, 1)
    joined = paster.joined(function, "joined", __file__)
    assert not {"both", "grown", "noted", "follows"} & {
        name for name in joined.__code__.co_names if function is not maybe
    }
    # The call itself makes the tuple of two parts.
    scope = {**function.__globals__, "kind": lambda first, second: Pair(*first, *second)}
    called = FunctionType(function.__code__, scope)

    def given() -> tuple[Any, Any]:
        return ([1, 2],), (5, [3, 4])

    assert joined(*given()) == called(*given())
