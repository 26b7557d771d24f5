"""What a checkpoint belongs to: a description of a run's problem, algorithm and settings."""

from __future__ import annotations

import importlib.util
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch

import bilevel
from bilevel.errors import UserError
from bilevel.problem.identity.digests import WHOLE
from bilevel.problem.identity.problems import identity_of_problem
from bilevel.problem.identity.words import NOT_COMPARED, VARIABLES, VERSION, without_rooms, words_of
from bilevel.problem.identity.words import Identity as Identity
from bilevel.problem.peers import Peers
from bilevel.problem.problem import Problem

_PYTHON = f"{VERSION}Python"
_THREADS = "torch's threads"


def identity_of_settings(name: str, value: Any) -> Identity:
    """An object's class and its settings, including those of its parts.

    Example:
        >>> from bilevel.algorithms import AIDBiO
        >>> found = identity_of_settings("algorithm", AIDBiO(inner_steps=3))
        >>> found["algorithm"], found["algorithm.inner_steps"]
        ('bilevel.AIDBiO', '3')
    """
    return {key: word for key, word in words_of({name: value}).items() if not _is_version(key)}


def identity_of_run(problem: Problem, algorithm: Any, settings: Mapping[str, Any]) -> Identity:
    """Everything that a run's bits depend on."""
    return {
        **identity_of_problem(problem),
        **words_of({"algorithm": algorithm, **settings}),
        **_modes(),
        **_machine(),
    }


def differences(old: Mapping[str, str], new: Mapping[str, str], newer: bool = False) -> list[str]:
    """What differs, in words.

    Versions are left out (`other_versions`), and so is what cannot be compared.

    Args:
        old, new: the description that was kept, and the current one.
        newer: whether the old one comes from an earlier version, which had other names for some
            settings: then only what both have is compared.

    Example:
        >>> differences({"seed": "0", "steps": "3"}, {"seed": "1", "steps": "3"})
        ['seed was 0, is 1']
    """
    if newer:
        old = _of_older_formats(old)
        unlike = WHOLE, "the same as "  # what was looked at, and named, in other ways
        new = {n: w for n, w in new.items() if n in old and not any(u in w for u in unlike)}
        old = {name: old[name] for name in new}
    if same_python := old.get(_PYTHON) == new.get(_PYTHON):
        old = _renamed(old, new)
    skipped = {name for words in (old, new) for name in words if _is_skipped(name, words)}
    if not same_python:  # whose bytecode differs
        skipped |= {name for name in (*old, *new) if name.endswith(("'s code", "'s constants"))}
    skipped |= {n for n in (*old, *new) if _is_version(n) or n.endswith(VARIABLES)}
    return _told(old, new, [name for name in {**old, **new} if name not in skipped])


def other_versions(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The software on which the last digits depend, although the run is the same."""
    return _told(old, new, [n for n in old if _is_version(n) and n in new])


def not_compared(identity: Mapping[str, str]) -> list[str]:
    """What two runs may differ in although their descriptions are equal."""
    return [
        f"{name} ({word.removeprefix(NOT_COMPARED)})"
        for name, word in identity.items()
        if word.startswith(NOT_COMPARED)
    ]


def check_agreement(peers: Peers, mine: Identity) -> None:
    """Raise on every process, before any work, if their problems or settings differ.

    Raises:
        UserError: it says what differs, and where.
    """
    leader = peers.told(mine)
    here = differences(leader, mine)
    # A flag for each of the leader's names, and one for names that only this process has.
    names = list(leader)
    rows = torch.zeros(peers.size, len(names) + 1, dtype=torch.int64)
    changed = {text.split(" was ")[0] for text in here}
    rows[peers.rank] = torch.tensor([*(n in changed for n in names), bool(changed - {*names})])
    found = peers.sum(rows)
    told = [
        f"rank {rank} differs from rank 0 in "
        + ", ".join(n for n, bit in zip([*names, "other parts"], row, strict=True) if bit)
        for rank, row in enumerate(found.tolist())
        if any(row)
    ]
    if told:
        own = f" (here, on rank {peers.rank}: {'; '.join(here)})" if here else ""
        raise UserError(f"the processes do not work on the same run: {'; '.join(told)}{own}")


def _renamed(old: Mapping[str, str], new: Mapping[str, str]) -> Mapping[str, str]:
    """`old` with the variables of its functions under the names that they have in `new`."""
    for name in new:  # a function before those that it holds
        before, now = (words.get(name, "").split(", ") for words in (old, new))
        # By place, unless one is new: that is more than another name.
        if name.endswith(VARIABLES) and before != now and len(before) == len(now):
            holder, names = name.removesuffix(VARIABLES), dict(zip(before, now, strict=True))
            old = {_in(holder, names, key): _in(holder, names, old[key]) for key in old}
    return old


def _in(holder: str, names: Mapping[str, str], text: str) -> str:
    """A name, or a word that refers to one, with the variables of a function renamed."""
    place = rf"^((?:the same as )?{re.escape(holder)}\.)({'|'.join(names)})(?=\.|'s |$)"
    return re.sub(place, lambda found: found[1] + names[found[2]], text)


def _told(old: Mapping[str, str], new: Mapping[str, str], names: list[str]) -> list[str]:
    return [
        f"{name} was {old.get(name, 'not there')}, is {new.get(name, 'not there')}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _is_version(name: str) -> bool:
    return name.startswith(VERSION) or name == _THREADS


def _is_skipped(name: str, words: Mapping[str, str]) -> bool:
    """Whether it, or something that it is part of, cannot be compared."""
    steps = name.split(".")
    places = (".".join(steps[: i + 1]) for i in range(len(steps)))
    return any(words.get(place, "").startswith(NOT_COMPARED) for place in places)


def _modes() -> Identity:
    """What torch has been told to do in other ways than it does by itself."""
    found = {
        "torch's default dtype": (str(torch.get_default_dtype()), "torch.float32"),
        "torch's precision of float32 products": (torch.get_float32_matmul_precision(), "highest"),
    }
    return {name: mode for name, (mode, usual) in found.items() if mode != usual}


def _machine() -> Identity:
    """What the last digits depend on although the run is the same."""
    numba = metadata.version("numba") if importlib.util.find_spec("numba") else "not there"
    return {
        _PYTHON: ".".join(platform.python_version_tuple()[:2]),
        f"{VERSION}bilevel": bilevel.__version__,
        f"{VERSION}torch": str(torch.__version__),
        f"{VERSION}numba": numba,
        _THREADS: str(torch.get_num_threads()),
    }


def _of_older_formats(old: Mapping[str, str]) -> Identity:
    """The descriptions of formats 1 and 2 in today's terms, as far as possible.

    In format 1, automatic settings had a word of their own, models were closed forms, and an update
    of x was an optimiser's name beside its rate.
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
