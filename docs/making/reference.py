"""Pages of the API: one for the library's own names, one for each of its public modules."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import bilevel

# The rooms in the order in which a reader meets them.
_ROOMS = {
    "problem": "State a problem",
    "models": "Problems whose derivatives are known",
    "runs": "Solve it",
    "theory": "Trust it",
    "hypergradients": "Hypergradients",
    "oracles": "Counts",
}
_FIRST = ("Problem", "minimize", "certify")  # of their rooms; the others follow by name


def pages() -> dict[str, str]:
    """The source of each page, by its path."""
    own = {name: getattr(bilevel, name) for name in bilevel.__all__}
    modules = {name: item for name, item in own.items() if isinstance(item, ModuleType)}
    rooms: dict[str, list[str]] = {}
    names = own.keys() - modules.keys()
    for name in sorted(names, key=lambda name: (name not in _FIRST, name.lower())):
        room = own[name].__module__.split(".")[1]
        rooms.setdefault(room, []).append(_entry("bilevel", name, own[name]))
    order = [*_ROOMS, *sorted(rooms.keys() - _ROOMS.keys())]
    parts = [
        f"## {_ROOMS.get(room, room.capitalize())}\n\n" + "\n".join(rooms[room])
        for room in order
        if room in rooms
    ]
    found = {"reference/api/bilevel.md": "# bilevel\n\n" + "\n".join(parts)}
    for name, module in modules.items():
        if names := public(module):
            entries = [
                _entry(f"bilevel.{name}", each, getattr(module, each), is_again=each in own)
                for each in names
            ]
            text = inspect.getdoc(module) or ""
            page = f"# bilevel.{name}\n\n{text}\n\n" + "\n".join(entries)
            found[f"reference/api/{name}.md"] = page
    return found


def public(module: ModuleType) -> list[str]:
    """What a module offers: its `__all__`, or else what its file defines."""
    names = getattr(module, "__all__", None) or [
        name
        for name, item in vars(module).items()
        if not name.startswith("_") and getattr(item, "__module__", None) == module.__name__
    ]
    return sorted(names, key=str.lower)


def _entry(package: str, name: str, item: Any, is_again: bool = False) -> str:
    if not (inspect.isclass(item) or inspect.isfunction(item)):
        return f"### {name}\n\n`{item}`\n"
    place = f"{item.__module__}.{item.__qualname__}"
    heading = f"{package}.{name}"
    # Links lead to the first of two places.
    again = "      skip_local_inventory: true\n" if is_again else ""
    options = f"      heading: {heading}\n      toc_label: {name}\n{again}"
    return f"::: {place}\n    options:\n{options}"
