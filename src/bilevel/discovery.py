"""Nobody keeps a list: what a package's files define is what the package offers."""

from __future__ import annotations

import importlib
import pkgutil
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
