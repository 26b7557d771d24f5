"""Tells the user's own code from that of libraries."""

from __future__ import annotations

import functools
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_HOME = str(Path(__file__).resolve().parents[2])  # of bilevel itself
_PACKAGES = ("site-packages", "dist-packages")


def is_own_code(code: CodeType) -> bool:
    """Whether the user wrote a function: in a file, in a notebook or at a prompt."""
    return _is_own_file(code.co_filename)


def is_own_module(name: str) -> bool:
    """Whether the module of this name is the user's; an unknown module counts as the user's."""
    if name in sys.builtin_module_names:
        return False
    # A submodule of a library need not have a file.
    modules = (sys.modules.get(part) for part in (name, name.partition(".")[0]))
    files = (getattr(module, "__file__", None) for module in modules)
    return all(file is None or _is_own_file(file) for file in files)


def is_own(value: Any) -> bool:
    """Whether the user wrote a function, a class, or that of an instance, wherever it was put."""
    if isinstance(value, functools.partial):
        return is_own(value.func)
    if isinstance(value, FunctionType):
        # Libraries make code from texts, too; a wrapper of the user's bears the name of a library.
        made = value.__code__.co_filename.startswith("<")
        made = made and not is_own_module(str(value.__module__))
        return is_own_code(value.__code__) and not made
    kind = value if isinstance(value, type) else type(value)
    return any(is_own(part) for part in vars(kind).values() if isinstance(part, FunctionType))


def package_of(value: Any) -> str:
    """The package that a function, a class or a module comes from, such as "torch"."""
    name = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return str(name).partition(".")[0]


def version_of(package: str) -> str | None:
    """The package's `__version__`; None if it has none."""
    found = getattr(sys.modules.get(package), "__version__", None)
    return None if found is None else str(found)


@functools.cache
def _is_own_file(file: str) -> bool:
    if file.startswith("<frozen"):
        return False
    path = Path(file)
    if any(part in _PACKAGES for part in path.parts):
        return False
    return not any(path.is_relative_to(home) for home in (_HOME, _standard_library()))


@functools.cache
def _standard_library() -> str:
    return sysconfig.get_paths()["stdlib"]
