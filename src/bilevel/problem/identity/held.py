"""What a value is made of, by name: a function's closure, an object's attributes, and so on."""

from __future__ import annotations

import builtins
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

from bilevel.problem.identity.code import cells_in, imports_in, names_in
from bilevel.problem.identity.own import is_own, is_own_code, is_own_module

Parts = Iterator[tuple[str, Any]]
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLACES = {"_torchdynamo_wrapper_id"}  # an address: another in each process
_CACHES = {"dispatch_cache", "cache_token", "_clear_cache"}  # of functools.singledispatch
_OF_MODULES = frozenset(vars(nn.Module())) - {"training"} | _PLACES
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
        yield from _put_into_builtins(read - known.keys())
        for name in imports_in(code, str(known.get("__package__") or "")):
            with suppress(ImportError):  # then the loss itself will tell
                yield from _global(name, importlib.import_module(name), all_names)
        yield from _put_into("Tensor", Tensor, all_names)
    for name, value in closed_over(function).items():
        if is_own_code(code) or name not in _CACHES:
            yield from _global(name, value, all_names)
    yield from defaults_of(function).items()
    yield from (function.__kwdefaults__ or {}).items()
    for name, part in vars(function).items():
        if name not in _PLACES | _CACHES:
            yield ("wrapped" if name == "__wrapped__" else name), part


def closed_over(function: FunctionType) -> dict[str, Any]:
    """Its closure, as it is first used; a variable that is not assigned yet is left out."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    used = {name: cells[name] for name in cells_in(function.__code__) if name in cells} | cells
    return {name: cell.cell_contents for name, cell in used.items() if cell != type(cell)()}


def defaults_of(function: FunctionType) -> dict[str, Any]:
    """The defaults of parameters that may be given by position."""
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    return dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))


def _global(name: str, value: Any, names: set[str], depth: int = 4) -> Parts:
    """A global; for a module of the user's, the attributes that the function may read."""
    here = isinstance(value, ModuleType) and is_own_module(value.__name__)
    by_name = here and depth and not names & _BY_ANY_NAME
    read = sorted(names & vars(value).keys()) if by_name else []
    if not read:  # no attribute by name: the module is passed on as a whole
        yield name, value
        if isinstance(value, ModuleType) and not here:
            yield from _put_into(name, value, names)
        return
    for attribute in (*read, *({"__getattr__"} & vars(value).keys())):
        yield from _global(f"{name}.{attribute}", vars(value)[attribute], names, depth - 1)


def _put_into(name: str, place: Any, names: set[str], depth: int = 4) -> Parts:
    """What the user has put into a library's module or class, as far as the function names it."""
    for attribute in sorted(names & vars(place).keys()):
        value, path = vars(place)[attribute], f"{name}.{attribute}"
        if isinstance(value, ModuleType) and depth and not is_own_module(value.__name__):
            yield from _put_into(path, value, names, depth - 1)
        elif is_own(value) or isinstance(value, _COUNTED):  # such as math.pi, which may be edited
            yield path, value


def _put_into_builtins(names: set[str]) -> Parts:
    """What the user has put among Python's own names, or in the place of one."""
    for name in sorted(names & vars(builtins).keys()):
        value = vars(builtins)[name]
        if is_own(value) or not (inspect.isbuiltin(value) or inspect.isclass(value)):
            yield name, value


def _of_class(kind: type) -> Parts:
    """What the class and its bases define, as far as they are the user's own."""
    for owner in kind.__mro__:
        if not is_own_module(owner.__module__):
            yield from _put_into_class(owner)
            continue
        for name, value in vars(owner).items():
            value = getattr(value, "__func__", value)  # of a static or a class method
            hidden = name.startswith("__") and not (callable(value) or isinstance(value, _COUNTED))
            hidden = name == "__firstlineno__" or (hidden and name != "__match_args__")
            foreign = inspect.isdatadescriptor(value) and not is_own_module(type(value).__module__)
            if isinstance(value, property):
                yield name, value.fget
                yield f"{name}.setter", value.fset
            elif isinstance(value, functools.cached_property):
                yield name, value.func  # beside it is a lock
            elif not hidden and name != "_abc_impl" and not foreign:
                yield name, value
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
            # Under full names: the slot `__r` of a class C is `_C__r`.
            slots = vars(owner).items() if "__slots__" in vars(owner) else ()
            for name, slot in slots:
                if inspect.ismemberdescriptor(slot) and hasattr(value, name):
                    yield name, getattr(value, name)
    yield from class_of(value)


def attributes(value: Any) -> Parts:
    """The entries of its `__dict__`, unless the class uses that name for something else."""
    found = getattr(value, "__dict__", None)
    yield from found.items() if isinstance(found, Mapping) else ()


def class_of(value: Any) -> Parts:
    """Its class, if the user defined it, or else what the user has put into it."""
    if is_own_module(type(value).__module__):
        yield "class", type(value)
    else:
        for owner in type(value).__mro__:
            yield from _put_into_class(owner)


def _put_into_class(kind: type) -> Parts:
    """The methods of a library's class that the user has replaced or added."""
    methods = ((n, v) for n, v in vars(kind).items() if isinstance(v, FunctionType))
    yield from ((name, method) for name, method in methods if is_own(method))
