"""Nobody keeps a list: what a package's files define is what the package offers."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def load_modules(package: ModuleType) -> list[ModuleType]:
    """Import every file of a package."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def defined_in(package: ModuleType, base: type[Any]) -> dict[str, type[Any]]:
    """The final subclasses of `base` that the files of `package` define, by class name."""
    found = {
        name: item
        for module in load_modules(package)
        for name, item in vars(module).items()
        if isinstance(item, type)
        and issubclass(item, base)
        and item.__module__ == module.__name__
        and not name.startswith("_")
        and not getattr(item, "__abstractmethods__", None)
    }
    return dict(sorted(found.items()))


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names its stub file imports.

    The stub is what type checkers read, so that the list of public names stands in one place.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {
        alias.name: node.module
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(homes[name]), name)

    return get, lambda: sorted(homes), sorted(homes)
