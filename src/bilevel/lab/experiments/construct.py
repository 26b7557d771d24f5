"""From tables of a TOML file to objects, and back.

A setting is a number, a text, a table of batch sizes, or one of
    {schedule = "increasing", c = 2}      a schedule of `bilevel.schedules`
    {solver = "NewtonCG", tol = 1e-6}     an inner solver of `bilevel.inner`
    {update = "Momentum", lr = 0.1}       an update of `bilevel.updates`
    "none"                                Python's None, which TOML lacks
    "auto"                                what the method takes if nothing is said
    "jacobi"                              as a preconditioner: the Hessian's own diagonal
`outer_optimizer = "adam"` with `outer_lr = 0.01` is short for an update of x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from bilevel import schedules
from bilevel.algorithms import Algorithm, registry
from bilevel.discovery import defined_in
from bilevel.errors import UserError, quoted
from bilevel.lab.tasks import Task, kinds
from bilevel.problem.sampling import AtMost
from bilevel.solvers import inner, linear, updates
from bilevel.solvers.measured import Measured

Table = Mapping[str, Any]
_NONE = "none"
_PRECONDITIONERS = {"jacobi": linear.jacobi}
_SCHEDULES = {"increasing": schedules.increasing, "decaying": schedules.decaying}
_MARKS = {
    "schedule": _SCHEDULES,
    "solver": defined_in(inner, inner.InnerSolver),
    "update": defined_in(updates, updates.Update),
}
_AUTO = "auto"
_OPTIMIZERS: dict[str, tuple[type[Any], float]] = {
    "sgd": (updates.Descent, 0.1),
    "adam": (updates.Adam, 0.01),
}


def make_algorithm(name: str, settings: Table) -> Algorithm:
    """An algorithm of the registry with these settings.

    Example:
        >>> make_algorithm("bsa", {"inner_steps": {"schedule": "increasing", "c": 2}}).inner_steps
        increasing(c=2, power=0.25)
    """
    entry = _choose("algorithm", name, registry())
    said = {key: value for key, value in settings.items() if value != _AUTO}
    decoded = {key: _decode(key, value) for key, value in said.items()}
    algorithm: Algorithm = _make(entry.algorithm, _with_update(decoded), f"{name}'s settings")
    return algorithm


def _with_update(settings: dict[str, Any]) -> dict[str, Any]:
    """`outer_optimizer` and `outer_lr` as an update."""
    if "outer_optimizer" not in settings:
        return settings
    rest = {key: value for key, value in settings.items() if not key.startswith("outer_")}
    update, lr = _choose("outer_optimizer", settings["outer_optimizer"], _OPTIMIZERS)
    given = settings.get("outer_lr")
    return {**rest, "outer": update(lr if given is None else given), "outer_lr": None}


def _in_short(outer: Any) -> dict[str, Any]:
    """An update as `outer_optimizer` and `outer_lr`, which a sweep may change, if they say all."""
    for name, (update, _) in _OPTIMIZERS.items():
        if type(outer) is update and outer == update(outer.lr):
            return {"outer_optimizer": name, "outer_lr": _encode(outer.lr)}
    return {}


def make_task(kind: str, options: Table) -> Task:
    """A task of this kind with these options."""
    chosen = _choose("problem.kind", kind, kinds())
    decoded = {key: _decode(key, value) for key, value in options.items()}
    task: Task = _make(chosen, decoded, f"the options of {kind}")
    return task


def settings_of(made: Algorithm | Task) -> dict[str, Any]:
    """All settings of an algorithm or task as a table, defaults included.

    None, where it is the default, is left out.

    Example:
        >>> settings_of(make_task("per-feature", {}))
        {'validation_fraction': 0.5}
    """
    table = {}
    for field in fields(made):  # type: ignore[arg-type]
        value = getattr(made, field.name)
        if value is not None or field.default is not None:
            table[field.name] = _encode(value)
    if short := _in_short(getattr(made, "outer", None)):
        del table["outer"]
    return table | short


def _decode(key: str, value: Any) -> Any:
    if value == _NONE:
        return None
    if key == "preconditioner" and isinstance(value, str):
        return _choose(key, value, _PRECONDITIONERS)
    if isinstance(value, Mapping):
        parts = {part: _decode(part, inside) for part, inside in value.items()}
        for mark, choices in _MARKS.items():
            if mark in parts:
                chosen = _choose(f"{key}.{mark}", parts.pop(mark), choices)
                return _make(chosen, parts, f"{key} = {value}")
        return parts
    return tuple(value) if isinstance(value, list) else value


def _encode(value: Any) -> Any:
    if value is None:
        return _NONE
    if isinstance(value, Measured | AtMost):
        return _AUTO
    for mark, choices in _MARKS.items():
        if type(value).__name__ in choices:
            parts = {f.name: getattr(value, f.name) for f in fields(value)}
            known = {name: _encode(part) for name, part in parts.items() if part is not None}
            return {mark: type(value).__name__, **known}
    for name, function in _PRECONDITIONERS.items():
        if value is function:
            return name
    if isinstance(value, Mapping):
        return {key: _encode(inside) for key, inside in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _make(wanted: type[Any], arguments: Table, where: str) -> Any:
    assert is_dataclass(wanted)
    known = [field.name for field in fields(wanted)]
    if unknown := [name for name in arguments if name not in known]:
        raise UserError(
            f"{where}: there is no {', '.join(map(repr, unknown))}; known are {', '.join(known)}"
        )
    try:
        return wanted(**arguments)
    except (ValueError, TypeError) as error:
        raise UserError(f"{where}: {error}") from error


def _choose(what: str, name: Any, choices: Mapping[str, Any]) -> Any:
    if not isinstance(name, str) or name not in choices:
        raise UserError(f"{what} = {quoted(name)} is unknown: choose one of {', '.join(choices)}")
    return choices[name]
