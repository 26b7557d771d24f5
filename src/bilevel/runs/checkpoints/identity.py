"""What a checkpoint belongs to: a run's problem, algorithm and settings, as words to compare.

Functions count by their names, and by the tensors, arrays and modules that they close over or
name. Numbers count as they print, data by a digest (see `digests`).
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bilevel.problem.digests import digest_of_rows, digest_of_tensor
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Source

Identity = dict[str, str]  # by name, such as "inner_lr": "0.1"
_DEPTH = 4  # of parts of parts: objects may refer to one another without end


def identity_of_problem(problem: Problem) -> Identity:
    """Its sizes, start, losses and data.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> found = identity_of_problem(problem)
        >>> found["dtype"], found["size of x"], found["inner"]
        ('torch.float32', '1', 'bilevel.runs.checkpoints.identity.<lambda>')
    """
    found = {
        "dtype": str(problem.dtype),
        "device": problem.device.type,
        "size of x": str(len(problem.x0)),
        "size of y": str(len(problem.y0)),
        "x0": digest_of_tensor(problem.x0),
        "y0": digest_of_tensor(problem.y0),
        "tasks": str(problem.tasks),
    }
    words = _Words()
    # Rows may be made by a user's code, which may draw random numbers.
    with problem.untouched(seed=0):
        for name in ("outer_data", "inner_data", "model", "outer", "inner"):
            found |= dict(words.of(name, getattr(problem, name)))
    return found


def identity_of_settings(name: str, value: Any) -> Identity:
    """An object's class and its settings, those of its parts among them.

    Example:
        >>> from bilevel.algorithms import AIDBiO
        >>> found = identity_of_settings("algorithm", AIDBiO(inner_steps=3))
        >>> found["algorithm"], found["algorithm.inner_steps"]
        ('bilevel.AIDBiO', '3')
    """
    return dict(_Words().of(name, value))


def identity_of_run(problem: Problem, algorithm: Any, settings: Mapping[str, Any]) -> Identity:
    """All that a run's bits depend on."""
    found = {**identity_of_problem(problem), **identity_of_settings("algorithm", algorithm)}
    for name, value in settings.items():
        found |= identity_of_settings(name, value)
    return found


def differences(old: Mapping[str, str], new: Mapping[str, str], newer: bool = False) -> list[str]:
    """What is not the same, in words.

    Args:
        old, new: what was kept, and what is there.
        newer: whether the old words come from an earlier version, whose names for some settings
            were others: then only what both have is compared.

    Example:
        >>> differences({"seed": "0", "steps": "3"}, {"seed": "1", "steps": "3"})
        ['seed was 0, is 1']
    """
    names = [*old, *(name for name in new if name not in old)]
    if newer:
        old = _of_format_1(old)
        names = [name for name in old if name in new]
    return [
        f"{name} was {old.get(name, 'not there')}, is {new.get(name, 'not there')}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _of_format_1(old: Mapping[str, str]) -> Identity:
    """Its words in those of today, where there are such.

    What was automatic then had a word for it, models were closed forms, and an update of x was the
    name of an optimiser next to its rate.
    """
    found = {}
    adam = old.get("algorithm.outer_optimizer") == "'adam'"
    for name, word in old.items():
        if word == "'auto'" or word.startswith("the same as "):
            continue
        name = re.sub(r"^closed_form\.", "model.form.", name)
        if adam:
            name = re.sub(r"^algorithm\.outer_lr", "algorithm.outer.lr", name)
        found[name] = _without_rooms(word)
    if adam:
        found |= {"algorithm.outer": "bilevel.Adam", "algorithm.outer_lr": "None"}
    return found


class _Words:
    """Says what values are, each of the larger ones once."""

    def __init__(self) -> None:
        self._known: dict[
            int, tuple[str, Any]
        ] = {}  # with the value: a dead one's id is used again

    def of(self, name: str, value: Any, depth: int = _DEPTH) -> Iterator[tuple[str, str]]:
        if isinstance(value, str | int | float | torch.dtype) or value is None:
            yield name, repr(value)
        elif id(value) in self._known:
            # Data that both losses use are read, and named, only once.
            yield name, f"the same as {self._known[id(value)][0]}"
        else:
            self._known[id(value)] = name, value
            word, parts = _described(value)
            if word is not None:
                yield name, word
            for key, part in parts if depth else ():
                yield from self.of(f"{name}.{key}", part, depth - 1)


def _described(value: Any) -> tuple[str | None, Iterable[tuple[Any, Any]]]:
    """A word for a value, and its parts by name."""
    if isinstance(value, Source):
        return f"{len(value):,} rows with digest {digest_of_rows(value)}", ()
    if isinstance(value, Tensor | np.ndarray):
        shape = "×".join(map(str, value.shape)) or "1"
        return f"{shape} numbers with digest {digest_of_tensor(value)}", ()
    if isinstance(value, nn.Module):
        return _class_name(value), value.state_dict().items()
    if isinstance(value, Mapping):
        return None, value.items()
    if isinstance(value, tuple | list):
        return None, enumerate(value)
    if _is_record(value):
        return _class_name(value), ((f.name, getattr(value, f.name)) for f in fields(value))
    if isinstance(value, functools.partial):
        return None, [("function", value.func), *enumerate(value.args), *value.keywords.items()]
    return (_function_name(value), _held(value)) if callable(value) else (_class_name(value), ())


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function computes with: of what it closes over or names, only what is data."""
    if inspect.ismethod(function):
        yield "self", function.__self__
    if not inspect.isfunction(function):
        return
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    # A cell may still be empty: a function can be closed over before it is defined.
    closed = {name: cell.cell_contents for name, cell in cells if cell != type(cell)()}
    code, known = function.__code__, function.__globals__
    named = {name: known[name] for name in code.co_names if name in known}
    for key, value in {**named, **closed}.items():
        if isinstance(value, Tensor | np.ndarray | nn.Module) or _is_record(value):
            yield key, value
    defaults = {key: p.default for key, p in inspect.signature(function).parameters.items()}
    yield from ((k, v) for k, v in defaults.items() if v is not inspect.Parameter.empty)


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _class_name(value: Any) -> str:
    return _without_rooms(f"{type(value).__module__}.{type(value).__qualname__}")


def _without_rooms(name: str) -> str:
    """What is our own counts by its name alone: it may move from one file to another."""
    return re.sub(r"^bilevel\.[a-z0-9_.]*\.(?=[A-Z])", "bilevel.", name)


def _function_name(value: Any) -> str:
    # A function has a name of its own; an object that can be called, that of its class.
    name = getattr(value, "__qualname__", None)
    return _class_name(value) if name is None else _without_rooms(f"{value.__module__}.{name}")
