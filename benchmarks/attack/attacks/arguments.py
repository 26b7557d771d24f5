"""Odd words for every option of every command."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from attack.commands import built, call
from attack.tally import Tally

NAME, SHARE = "odd arguments", 1500
_ODD = (
    *("", "-1", "0", "1.5", "1e300", "1e-320", "nan", "inf", "-inf", "true", "2**64", "[x]", "--"),
    *(str(2**64), str(2**63), "9" * 20, "a" * 5000, "\0", "é\udcff", "=1+1", "auto"),
    *("/", ".", "..", "absent", "/dev/zero", "/dev/full", "/dev/null", "/proc/self/mem"),
    *("sqlite://", "sqlite:////proc/x.db", "postgresql://a@b:99999/c", "aid-bio", "fc100"),
)
_LONG = ("complexity", "reproduce")  # would work for minutes: they get an output that cannot be


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    commands = list(_leaves(built()))
    for _ in range(tries):
        path, command = chance.choice(commands)
        words = [*path, *_words(command, chance)]
        words += ["--output", "/proc/nowhere"] if path[0] in _LONG else []
        tally.attempt(" ".join(words)[:200], lambda words=words: call(*words))


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inside in command.commands.items():
        yield from _leaves(inside, (*path, name))


def _words(command: Any, chance: random.Random) -> Iterator[str]:
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            yield chance.choice(_ODD)
        elif parameter.required or chance.random() < 0.2:
            yield parameter.opts[0]
            if not parameter.is_flag:
                yield chance.choice(_ODD)
