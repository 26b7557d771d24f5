"""What a value is made of, by name: a function's closure, an object's attributes, and so on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from bilevel.problem.identity.code import names_in
from bilevel.problem.identity.own import is_own_code, is_own_module

Parts = Iterator[tuple[str, Any]]
_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}


def parts_of(value: Any) -> Parts:
    """The parts of a value, by name.

    A library's function has no globals and a library's class no methods: it counts by its name.

    Example:
        >>> scale = 2.0
        >>> def outer():
        ...     ridge = 0.1
        ...     return lambda x, power=2: ridge * x**power
        >>> dict(parts_of(outer()))
        {'ridge': 0.1, 'power': 2}
    """
    if isinstance(value, nn.Module):
        yield from _of_module(value)
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", range(len(value)))
        yield from ((str(name), part) for name, part in zip(names, value, strict=True))
    elif isinstance(value, functools.partial):
        yield "function", value.func
        yield from ((str(number), part) for number, part in enumerate(value.args))
        yield from value.keywords.items()
    elif inspect.ismethod(value):
        yield "self", value.__self__
        yield from parts_of(value.__func__)
    elif inspect.isfunction(value):
        yield from _of_function(value)
    elif inspect.isclass(value):
        yield from _of_class(value)
    elif not isinstance(value, ModuleType):
        yield from _of_object(value)


def _of_function(function: FunctionType) -> Parts:
    code = function.__code__
    if is_own_code(code):
        read, all_names = names_in(code)
        known = function.__globals__
        for name in sorted(read & known.keys()):
            yield from _global(name, known[name], all_names)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if cell != type(cell)():  # a function can be closed over before it is defined
            yield name, cell.cell_contents
    parameters = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    if hasattr(function, "__wrapped__"):
        yield "wrapped", function.__wrapped__


def _global(name: str, value: Any, names: set[str], depth: int = 4) -> Parts:
    """A global; of a module of the user's, what the function may read from it."""
    if not isinstance(value, ModuleType):
        yield name, value
    elif depth and is_own_module(value.__name__):
        for attribute in sorted(names & vars(value).keys()):
            yield from _global(f"{name}.{attribute}", vars(value)[attribute], names, depth - 1)
    else:
        yield name, value


def _of_class(kind: type) -> Parts:
    """What a class of the user's, and those of his that it inherits from, define."""
    for owner in kind.__mro__:
        if not is_own_module(owner.__module__):
            continue
        for name, value in vars(owner).items():
            hidden = name.startswith("__") and not callable(value)
            if not hidden and name != "_abc_impl" and not inspect.isdatadescriptor(value):
                yield name, getattr(value, "__func__", value)
            elif isinstance(value, property):
                yield name, value.fget


def _of_module(module: nn.Module) -> Parts:
    for kept in (module._parameters, module._buffers, module._modules):
        yield from ((name, part) for name, part in kept.items() if part is not None)
    yield from ((name, part) for name, part in vars(module).items() if name not in _OF_MODULES)
    yield from _class_of(module)


def _of_object(value: Any) -> Parts:
    kind = type(value)
    if is_dataclass(kind):
        # Its fields alone: it may keep what it has computed from them next to them.
        yield from (
            (f.name, getattr(value, f.name)) for f in fields(kind) if hasattr(value, f.name)
        )
    else:
        for name, part in getattr(value, "__dict__", {}).items():
            if not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property):
                yield name, part
        for owner in kind.__mro__:
            slots = vars(owner).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name != "__dict__" and hasattr(value, name):
                    yield name, getattr(value, name)
    yield from _class_of(value)


def _class_of(value: Any) -> Parts:
    if is_own_module(type(value).__module__):
        yield "class", type(value)
