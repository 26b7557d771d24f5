"""Nobody keeps a list: what a package's files define is what the package offers."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
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


def offering(package: str, classes: Mapping[str, type[Any]], names: Collection[str]) -> Any:
    """`__getattr__` of a package that offers these classes; `names` are all that it has."""

    def get(name: str) -> Any:
        if name in classes:
            return classes[name]
        raise AttributeError(f"{package} has no {name!r}; it has {', '.join(names)}")

    return get


def import_extra(module: str, need: str, extra: str) -> Any:
    """A module of an optional package; if it is missing, the error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'{need}: pip install "bilevel[{extra}]"') from error


class _PublicModules(MetaPathFinder, Loader):
    """`import bilevel.linear` for what lives in a room of its own, `bilevel.solvers.linear`."""

    def __init__(self, package: str, homes: Mapping[str, str]) -> None:
        self._places = {
            f"{package}.{name}": f"{home}.{name}" for name, home in homes.items() if name.islower()
        }

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in self._places else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        try:
            return importlib.import_module(self._places[spec.name])
        except ModuleNotFoundError as error:  # a public function, say
            raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name) from error

    def exec_module(self, module: ModuleType) -> None:
        """It has run already, under its own name."""


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
        try:
            home = importlib.import_module(homes[name])
        except ModuleNotFoundError as error:
            if str(error.name).startswith("bilevel"):
                raise
            import_extra(str(error.name), f"{name} needs {error.name}", "sklearn")
        if home.__name__ != package and hasattr(home, name):
            return getattr(home, name)
        return importlib.import_module(f"{home.__name__}.{name}")

    sys.meta_path.append(_PublicModules(package, homes))
    return get, lambda: sorted(homes), sorted(homes)
