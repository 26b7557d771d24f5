"""What a value is made of, by name: a function's closure, an object's attributes, and so on."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from bilevel.problem.identity.code import imports_in, names_in
from bilevel.problem.identity.own import is_own_code, is_own_module

Parts = Iterator[tuple[str, Any]]
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
_SHORT, _LONGEST = int | float | complex | bytes | None, 80  # keys, and letters of them
_BY_ANY_NAME = {"getattr", "vars", "__dict__"}  # what they read may not be in the code
_COUNTED = int | float | complex | Tensor | np.ndarray  # behind a name such as __ridge__


def parts_of(value: Any) -> Parts:
    """The parts of a value, by name.

    A library's function or class counts by its name alone: its globals and methods are left out.

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
        yield from _of_mapping(value)
        yield from _of_container(value)
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", range(len(value)))
        yield from ((str(name), part) for name, part in zip(names, value, strict=True))
        yield from _of_container(value)
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
    elif isinstance(value, ModuleType):
        if is_own_module(value.__name__):  # held as a value: any of its attributes may be read
            yield from (
                (n, v) for n, v in vars(value).items() if n == "__getattr__" or n[:2] != "__"
            )
    else:
        if (owner := getattr(value, "__self__", None)) is not None:  # such as `table.get`
            yield "self", owner
        yield from _of_object(value)


def _of_mapping(value: Mapping[Any, Any]) -> Parts:
    """1 and "1" are different keys; a key without a short text counts by its position."""
    for i, (key, part) in enumerate(value.items()):
        if isinstance(key, str):
            yield key, part
        elif isinstance(key, _SHORT) and len(text := repr(key)) <= _LONGEST:
            yield f"[{text}]", part
        else:
            yield f"#{i}", part
            yield f"#{i}'s key", key


def _of_container(value: Any) -> Parts:
    """What an instance of a subclass has besides its entries."""
    if type(value) not in (dict, list, tuple):
        if (factory := getattr(value, "default_factory", None)) is not None:
            yield "default factory", factory
        if isinstance(value, OrderedDict):  # a plain dict may come from a set, in any order
            yield "order", tuple(value)
        yield from attributes(value)
        yield from class_of(value)


def _of_function(function: FunctionType) -> Parts:
    code, known = function.__code__, function.__globals__
    read, all_names = names_in(code)
    if is_own_code(code):
        for name in sorted(read & known.keys()):
            yield from _global(name, known[name], all_names)
        for name in imports_in(code, str(known.get("__package__") or "")):
            with suppress(ImportError):  # then the loss itself will tell
                yield from _global(name, importlib.import_module(name), all_names)
    for name, value in closed_over(function).items():
        yield from _global(name, value, all_names)
    parameters = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name, part in vars(function).items():
        yield ("wrapped" if name == "__wrapped__" else name), part


def closed_over(function: FunctionType) -> dict[str, Any]:
    """The values of its closure; a variable that is not assigned yet is left out."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if cell != type(cell)()}


def _global(name: str, value: Any, names: set[str], depth: int = 4) -> Parts:
    """A global; for a module of the user's, the attributes that the function may read."""
    here = isinstance(value, ModuleType) and is_own_module(value.__name__)
    by_name = here and depth and not names & _BY_ANY_NAME
    read = sorted(names & vars(value).keys()) if by_name else []
    if not read:  # no attribute by name: the module is passed on as a whole
        yield name, value
        return
    for attribute in (*read, *({"__getattr__"} & vars(value).keys())):
        yield from _global(f"{name}.{attribute}", vars(value)[attribute], names, depth - 1)


def _of_class(kind: type) -> Parts:
    """What the class and its bases define, as far as they are the user's own."""
    for owner in kind.__mro__:
        if not is_own_module(owner.__module__):
            continue
        for name, value in vars(owner).items():
            hidden = name.startswith("__") and not (callable(value) or isinstance(value, _COUNTED))
            hidden |= name == "__firstlineno__"
            foreign = inspect.isdatadescriptor(value) and not is_own_module(type(value).__module__)
            if isinstance(value, property):
                yield name, value.fget
            elif isinstance(value, functools.cached_property):
                yield name, value.func  # beside it is a lock
            elif not hidden and name != "_abc_impl" and not foreign:
                yield name, getattr(value, "__func__", value)
    if is_own_module(type(kind).__module__):
        yield "metaclass", type(kind)


def _of_module(module: nn.Module) -> Parts:
    for kept in (module._parameters, module._buffers, module._modules):
        yield from ((name, part) for name, part in kept.items() if part is not None)
    yield from ((name, part) for name, part in vars(module).items() if name not in _OF_MODULES)
    for kind in _HOOKS:
        # By order: torch numbers hooks consecutively over all modules.
        yield from (
            (f"{kind}.{i}", hook) for i, hook in enumerate(getattr(module, kind, {}).values())
        )
    yield from class_of(module)


def _of_object(value: Any) -> Parts:
    kind = type(value)
    if is_dataclass(kind) and not is_own_module(kind.__module__):
        # Only its fields: our dataclasses cache what they compute beside them.
        yield from (
            (f.name, getattr(value, f.name)) for f in fields(kind) if hasattr(value, f.name)
        )
    else:
        for name, part in attributes(value):
            if not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property):
                yield name, part
        for owner in kind.__mro__:
            slots = vars(owner).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name != "__dict__" and hasattr(value, name):
                    yield name, getattr(value, name)
    yield from class_of(value)


def attributes(value: Any) -> Parts:
    """The entries of its `__dict__`, unless the class uses that name for something else."""
    found = getattr(value, "__dict__", None)
    yield from found.items() if isinstance(found, Mapping) else ()


def class_of(value: Any) -> Parts:
    """Its class, if the user defined it."""
    if is_own_module(type(value).__module__):
        yield "class", type(value)
