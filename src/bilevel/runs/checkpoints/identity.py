"""What a checkpoint belongs to: a run's problem, algorithm and settings, as words to compare."""

from __future__ import annotations

import importlib.util
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch

import bilevel
from bilevel.problem.identity.digests import WHOLE
from bilevel.problem.identity.problems import identity_of_problem
from bilevel.problem.identity.words import (
    NOT_COMPARED,
    VERSION,
    without_rooms,
    words_of,
)
from bilevel.problem.identity.words import (
    Identity as Identity,
)
from bilevel.problem.problem import Problem

_PYTHON = f"{VERSION}Python"
_THREADS = "torch's threads"


def identity_of_settings(name: str, value: Any) -> Identity:
    """An object's class and its settings, those of its parts among them.

    Example:
        >>> from bilevel.algorithms import AIDBiO
        >>> found = identity_of_settings("algorithm", AIDBiO(inner_steps=3))
        >>> found["algorithm"], found["algorithm.inner_steps"]
        ('bilevel.AIDBiO', '3')
    """
    return {key: word for key, word in words_of({name: value}).items() if not _is_soft(key)}


def identity_of_run(problem: Problem, algorithm: Any, settings: Mapping[str, Any]) -> Identity:
    """All that a run's bits depend on."""
    return {
        **identity_of_problem(problem),
        **words_of({"algorithm": algorithm, **settings}),
        **_machine(),
    }


def differences(old: Mapping[str, str], new: Mapping[str, str], newer: bool = False) -> list[str]:
    """What is not the same, in words.

    Versions are left out (`other_versions`), and so is what cannot be compared.

    Args:
        old, new: what was kept, and what is there.
        newer: whether the old words come from an earlier version, whose names for some settings
            were others: then only what both have is compared.

    Example:
        >>> differences({"seed": "0", "steps": "3"}, {"seed": "1", "steps": "3"})
        ['seed was 0, is 1']
    """
    if newer:
        old = _of_older_formats(old)
        unlike = WHOLE, "the same as "  # what was looked at, and named, in other ways
        new = {n: w for n, w in new.items() if n in old and not any(u in w for u in unlike)}
        old = {name: old[name] for name in new}
    skipped = {name for words in (old, new) for name in words if _is_skipped(name, words)}
    if old.get(_PYTHON) != new.get(_PYTHON):  # whose bytecode differs
        skipped |= {name for name in (*old, *new) if name.endswith(("'s code", "'s constants"))}
    return _told(old, new, [n for n in {**old, **new} if n not in skipped and not _is_soft(n)])


def other_versions(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The software on which the last digits depend, although the run is the same."""
    return _told(old, new, [name for name in old if _is_soft(name) and name in new])


def not_compared(identity: Mapping[str, str]) -> list[str]:
    """What two runs may differ in, although their words are the same."""
    return [
        f"{name} ({word.removeprefix(NOT_COMPARED)})"
        for name, word in identity.items()
        if word.startswith(NOT_COMPARED)
    ]


def _told(old: Mapping[str, str], new: Mapping[str, str], names: list[str]) -> list[str]:
    return [
        f"{name} was {old.get(name, 'not there')}, is {new.get(name, 'not there')}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _is_soft(name: str) -> bool:
    return name.startswith(VERSION) or name == _THREADS


def _is_skipped(name: str, words: Mapping[str, str]) -> bool:
    """Whether it cannot be compared, or is a part of what cannot be."""
    steps = name.split(".")
    places = (".".join(steps[: i + 1]) for i in range(len(steps)))
    return any(words.get(place, "").startswith(NOT_COMPARED) for place in places)


def _machine() -> Identity:
    """On what the last digits depend, although the run is the same."""
    numba = metadata.version("numba") if importlib.util.find_spec("numba") else "not there"
    return {
        _PYTHON: ".".join(platform.python_version_tuple()[:2]),
        f"{VERSION}bilevel": bilevel.__version__,
        f"{VERSION}torch": str(torch.__version__),
        f"{VERSION}numba": numba,
        _THREADS: str(torch.get_num_threads()),
    }


def _of_older_formats(old: Mapping[str, str]) -> Identity:
    """The words of formats 1 and 2 in those of today, where there are such.

    What was automatic in format 1 had a word for it, models were closed forms, and an update of x
    was the name of an optimiser next to its rate.
    """
    found = {}
    adam = old.get("algorithm.outer_optimizer") == "'adam'"
    for name, word in old.items():
        if word == "'auto'" or word.startswith("the same as "):
            continue
        name = re.sub(r"^closed_form\.", "model.form.", name)
        if adam:
            name = re.sub(r"^algorithm\.outer_lr", "algorithm.outer.lr", name)
        found[name] = without_rooms(word)
    if adam:
        found |= {"algorithm.outer": "bilevel.Adam", "algorithm.outer_lr": "None"}
    return found
