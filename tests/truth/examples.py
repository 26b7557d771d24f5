"""Objects of classes that are found, not listed: a new one is tested without further ado."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import ModuleType
from typing import Any

import pytest


def offered(package: ModuleType, base: type[Any]) -> dict[str, type[Any]]:
    """The classes of this kind that a package offers and that can be made, by name."""
    named = {name: getattr(package, name) for name in package.__all__}
    return {
        name: kind
        for name, kind in named.items()
        if isinstance(kind, type)
        and issubclass(kind, base)
        and not getattr(kind, "__abstractmethods__", None)
    }


def example(kind: type[Any], **settings: Any) -> Any:
    """One with those of the settings that it has, and its own defaults for the rest.

    The test is skipped where an argument has neither.
    """
    arguments = {}
    for field in fields(kind) if is_dataclass(kind) else ():
        if field.name in settings:
            arguments[field.name] = settings[field.name]
        elif field.default is MISSING and field.default_factory is MISSING:
            pytest.skip(f"nothing is known to give {kind.__name__} for {field.name}")
    return kind(**arguments)


def wrong_arguments(kinds: Iterable[type[Any]], wrong: Mapping[str, Sequence[Any]]) -> list[Any]:
    """(kind, argument, wrong value) for each argument; skipped where no wrong value is known."""
    found = []
    for kind in kinds:
        for field in fields(kind) if is_dataclass(kind) else ():
            name = f"{kind.__name__}-{field.name}"
            found += [
                pytest.param(kind, field.name, value, id=f"{name}-{value}")
                for value in wrong.get(field.name, ())
            ]
            if field.name not in wrong:
                skip = pytest.mark.skip(reason=f"no wrong value is known for {name}")
                found.append(pytest.param(kind, field.name, None, id=name, marks=skip))
    return found
