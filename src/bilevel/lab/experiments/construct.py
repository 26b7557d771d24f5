"""From tables of a TOML file to objects, and back.

A setting is a number, a text, a table of batch sizes, or one of
    {schedule = "increasing", c = 2}      a schedule of `bilevel.schedules`
    {solver = "NewtonCG", tol = 1e-6}     an inner solver of `bilevel.inner`
    "none"                                Python's None, which TOML lacks
    "jacobi"                              as a preconditioner: the Hessian's own diagonal
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from bilevel import schedules
from bilevel.algorithms import DoubleLoop, registry
from bilevel.discovery import defined_in
from bilevel.errors import UserError
from bilevel.lab.tasks import Task, kinds
from bilevel.solvers import inner, linear

Table = Mapping[str, Any]
_NONE = "none"
_PRECONDITIONERS = {"jacobi": linear.jacobi}
_SCHEDULES = {"increasing": schedules.increasing, "decaying": schedules.decaying}
_SOLVERS = defined_in(inner, inner.InnerSolver)


def make_algorithm(name: str, settings: Table) -> DoubleLoop:
    """An algorithm of the registry with these settings.

    Example:
        >>> make_algorithm("bsa", {"inner_steps": {"schedule": "increasing", "c": 2}}).inner_steps
        increasing(c=2, power=0.25)
    """
    entry = _choose("algorithm", name, registry())
    decoded = {key: _decode(key, value) for key, value in settings.items()}
    algorithm: DoubleLoop = _make(entry.algorithm, decoded, f"{name}'s settings")
    return algorithm


def make_task(kind: str, options: Table) -> Task:
    """A task of this kind with these options."""
    chosen = _choose("problem.kind", kind, kinds())
    decoded = {key: _decode(key, value) for key, value in options.items()}
    task: Task = _make(chosen, decoded, f"the options of {kind}")
    return task


def settings_of(made: DoubleLoop | Task) -> dict[str, Any]:
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
    return table


def _decode(key: str, value: Any) -> Any:
    if value == _NONE:
        return None
    if key == "preconditioner" and isinstance(value, str):
        return _choose(key, value, _PRECONDITIONERS)
    if isinstance(value, Mapping):
        parts = {part: _decode(part, inside) for part, inside in value.items()}
        for mark, choices in (("schedule", _SCHEDULES), ("solver", _SOLVERS)):
            if mark in parts:
                chosen = _choose(f"{key}.{mark}", parts.pop(mark), choices)
                return _make(chosen, parts, f"{key} = {value}")
        return parts
    return value


def _encode(value: Any) -> Any:
    if value is None:
        return _NONE
    for mark, choices in (("schedule", _SCHEDULES), ("solver", _SOLVERS)):
        if type(value).__name__ in choices:
            parts = {f.name: getattr(value, f.name) for f in fields(value)}
            known = {name: _encode(part) for name, part in parts.items() if part is not None}
            return {mark: type(value).__name__, **known}
    for name, function in _PRECONDITIONERS.items():
        if value is function:
            return name
    if isinstance(value, Mapping):
        return {key: _encode(inside) for key, inside in value.items()}
    return value


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
        raise UserError(f"{what} = {name!r} is unknown; there are {', '.join(choices)}")
    return choices[name]
