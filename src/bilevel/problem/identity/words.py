"""A walk through values that describes each part in words.

Data count by all their bytes, numbers and text as they print, a user's function by its code, its
closure, the globals that it reads and its defaults; what a library defines counts by its name and
the library's version. Where nothing can be known, the words say so (`NOT_COMPARED`).
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bilevel.problem.identity.code import asked_in, constants_of, digest_of_code
from bilevel.problem.identity.digests import digest_of_rows, digest_of_tensor, digest_of_text
from bilevel.problem.identity.held import attributes, class_of, closed_over, defaults_of, parts_of
from bilevel.problem.identity.own import is_own_code, is_own_module, package_of, version_of
from bilevel.problem.sources import Source, as_source
from bilevel.problem.stored.base import StoredRows

Identity = dict[str, str]  # by name, such as "inner_lr": "0.1"
Known = dict[int, tuple[str, Any]]  # by id; holding the value keeps its id unique
NOT_COMPARED = "not compared: "
VERSION = "version of "
VARIABLES = "'s variables"  # their names, in an order that renaming does not change
_SHORT = 100  # characters of a text, and parts of a list, that are shown one by one
_MOST = 5000  # parts: an object may lead to everything in a program
_NUMBERS = str | bytes | int | float | complex | torch.dtype | torch.device | np.generic
_PLAIN = _NUMBERS | Enum | PurePath | range | type(None) | type(Ellipsis)
_RANDOM = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
_SPARSE = ("shape", "data", "indices", "indptr", "row", "col", "coords", "offsets")
_WAYS = ("__reduce__", "__reduce_ex__", "__getstate__")  # how pickle takes an object apart


def words_of(values: Mapping[str, Any], known: Known | None = None) -> Identity:
    """Descriptions of the values and of their parts, by name.

    Example:
        >>> words_of({"seed": 0, "rates": (0.1, 0.2)})
        {'seed': '0', 'rates': '2 entries', 'rates.0': '0.1', 'rates.1': '0.2'}
    """
    found: Identity = {}
    known, used = {} if known is None else known, set[str]()
    ahead = deque(values.items())  # breadth first, so that names are short
    while ahead:
        name, value = ahead.popleft()
        while name in used:  # a method and the one it overrides
            name += "'"
        used.add(name)
        word = _plain(value)
        if word is None and id(value) in known:
            # Data that both losses use are read and described only once.
            word = f"the same as {known[id(value)][0]}"
        elif word is None:
            known[id(value)] = name, value
            try:
                words, parts = map(list, _described(value, known))
            except Exception as error:  # classes may do anything on attribute access
                words, parts = [("", f"{NOT_COMPARED}it raises {type(error).__name__}")], []
            found |= {_joined(name, key): text for key, text in words}
            if len(found) < _MOST:
                ahead.extend((f"{name}.{key}", part) for key, part in parts)
            else:
                found[name] = f"{NOT_COMPARED}it leads to more than {_MOST:,} parts"
        if word is not None:
            found[name] = word
    return found


def _plain(value: Any) -> str | None:
    """The description of a value without parts; None for any other."""
    if not isinstance(value, _PLAIN) or isinstance(value, np.void):
        return None
    if type(value).__module__ != "builtins" and is_own_module(type(value).__module__):
        return None  # its class is the user's
    text = repr(value)
    if isinstance(value, str | bytes) and len(text) > _SHORT:
        return f"{len(value):,} letters with digest {digest_of_text(text)}"
    return text


def _joined(name: str, key: str) -> str:
    return key if key.startswith(VERSION) else name + key


def _described(
    value: Any, known: Known
) -> tuple[Iterable[tuple[str, str]], Iterable[tuple[str, Any]]]:
    """Descriptions of a value, by suffix of its name; and its parts."""
    if isinstance(value, StoredRows):
        value = as_source("rows", value)
    if isinstance(value, Source):
        made = value.made_of()
        return ([("", _rows(value))], ()) if made is None else ((), [("made of", made)])
    if isinstance(value, np.void):
        value = np.asarray(value)
    if isinstance(value, Tensor | np.ndarray):
        return _array(value)
    if _is_sparse(value):
        # Not all attributes: SciPy also caches there whether the indices are sorted.
        plain = value if hasattr(value, "indptr") or hasattr(value, "offsets") else value.tocoo()
        parts = [(name, getattr(plain, name)) for name in _SPARSE if hasattr(plain, name)]
        return [("", class_name(value))], parts
    if isinstance(value, _RANDOM):
        return [("", f"{NOT_COMPARED}random numbers are drawn from it")], ()
    if type(value).__module__ == "torch._ops" and not str(value).startswith("aten."):
        return [("", f"{NOT_COMPARED}what torch runs for {value} was registered elsewhere")], ()
    if value is os.environ:
        return [("", f"{NOT_COMPARED}it is the environment")], ()
    if isinstance(value, set | frozenset):
        return [("", _set(value))], ()
    if isinstance(value, Mapping | tuple | list):
        return _container(value, known)
    if isinstance(value, functools.partial):
        return (), parts_of(value)
    if isinstance(value, ModuleType):
        return [("", f"module {value.__name__}"), *_library(value.__name__)], parts_of(value)
    if class_name(value) == "torch.fx.graph.Graph":  # its nodes hold addresses
        return [("", f"a graph with digest {digest_of_text(str(value))}")], ()
    if inspect.isfunction(compiled := getattr(value, "py_func", None)):  # by numba
        return [("", class_name(value))], [("function", compiled)]
    if inspect.isroutine(value) or inspect.isclass(value):
        return _function(value), parts_of(value)
    return _object(value)


def _array(value: Any) -> tuple[Iterable[tuple[str, str]], list[tuple[str, Any]]]:
    """Numbers or objects, with the class and the attributes if they are the user's own."""
    more = list(class_of(value))
    if more or isinstance(value, Tensor):
        more += attributes(value)
    if getattr(value.dtype, "hasobject", False):
        return [("", f"{value.shape} objects")], [("entries", value.ravel().tolist()), *more]
    if isinstance(value, np.ma.MaskedArray):
        return (), [("data", value.data), ("mask", np.ma.getmaskarray(value))]
    return [("", _numbers(value))], more


def _numbers(value: Tensor | np.ndarray[Any, Any]) -> str:
    try:
        shape = "×".join(map(str, value.shape)) or "1"
        return f"{shape} numbers with digest {digest_of_tensor(value)}"
    except RuntimeError:  # nested, quantised, or on a device without memory to copy
        return f"{NOT_COMPARED}a tensor of a kind whose numbers cannot be read"


def _is_sparse(value: Any) -> bool:
    # Whoever holds such a matrix has imported scipy.sparse; nobody else needs to.
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(value))


def _rows(source: Source) -> str:
    digest = digest_of_rows(source)
    if digest is None:
        return f"{NOT_COMPARED}a row changes from one reading to the next"
    return f"{len(source):,} rows with digest {digest}"


def _set(value: Iterable[Any]) -> str:
    members = [_plain(member) for member in value]
    if None in members:
        return f"{NOT_COMPARED}a set of objects has no order"
    text = "{" + ", ".join(sorted(filter(None, members))) + "}"
    return _shortened(text, f"{len(members):,} values")


def _shortened(text: str, what: str) -> str:
    return text if len(text) <= _SHORT else f"{what} with digest {digest_of_text(text)}"


def _container(value: Any, known: Known) -> tuple[list[tuple[str, str]], Iterable[tuple[str, Any]]]:
    if len(value) <= _SHORT:
        # With the number of entries: so a list that grows is seen to change as a whole.
        kind = "a list of " * isinstance(value, list)  # x[[0, 1]] is not x[0, 1]
        return [("", f"{kind}{len(value)} entries")], parts_of(value)
    # One by one, so that each has few parts; known values break cycles.
    words = (words_of({name: part}, known) for name, part in parts_of(value))
    text = digest_of_text("".join(map(repr, words)))
    return [("", f"{len(value):,} entries with digest {text}")], ()


def _function(value: Any) -> Iterator[tuple[str, str]]:
    yield "", function_name(value)
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType) and is_own_code(code):
        constants = [_plain(c) or ", ".join(words_of({"": c}).values()) for c in constants_of(code)]
        yield "'s code", digest_of_code(code)
        yield VARIABLES, ", ".join([*closed_over(function), *defaults_of(function)])
        yield "'s constants", _shortened(", ".join(constants), "some")
        if asked := asked_in(code, {**function.__globals__, **closed_over(function)}):
            yield "'s surroundings", f"{NOT_COMPARED}it asks {', '.join(asked)}"
    elif not is_own_module(str(getattr(value, "__module__", None))):
        yield from _library(package_of(value))


def _library(name: str) -> Iterator[tuple[str, str]]:
    package = name.partition(".")[0]
    if (version := version_of(package)) is not None:
        yield VERSION + package, version


def _object(value: Any) -> tuple[list[tuple[str, str]], Iterable[tuple[str, Any]]]:
    """An instance of any other class: by its attributes, or by what pickle would store."""
    kind = type(value)
    name = class_name(value)
    words = [("", name), *(() if is_own_module(kind.__module__) else _library(kind.__module__))]
    base: Any = next(c for c in kind.__mro__ if not is_own_module(c.__module__))
    if isinstance(value, _PLAIN):  # of a class of the user's
        words = [("", name), (" as a plain value", base.__repr__(value))]
    plain = all(getattr(base, how) is getattr(object, how) for how in _WAYS)
    own = is_own_module(kind.__module__) and plain
    if own or name.startswith("bilevel.") or isinstance(value, nn.Module | Enum):
        return words, parts_of(value)
    try:
        made = value.__reduce_ex__(4)
    except Exception:  # classes that cannot be pickled raise anything
        return [("", f"{NOT_COMPARED}{name} does not tell what it holds")], ()
    if isinstance(made, str):
        return words, ()
    if plain:
        return words, parts_of(value)
    _, arguments, *state = made
    listed = [list(part) if isinstance(part, Iterator) else part for part in state]
    return words, [("made of", (arguments, *listed)), *class_of(value)]


def class_name(value: Any) -> str:
    return without_rooms(f"{type(value).__module__}.{type(value).__qualname__}")


def function_name(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__)
    return without_rooms(f"{getattr(value, '__module__', None)}.{name}")


def without_rooms(name: str) -> str:
    """The library's own classes count by their names alone: they may move between files."""
    return re.sub(r"^bilevel\.[a-z0-9_.]*\.(?=[A-Z])", "bilevel.", name)
