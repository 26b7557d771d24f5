"""A run whose loss was edited must not go on as if it were the same."""

from __future__ import annotations

import random
import shutil

from attack.attacks.checkpoints import STEPS, run
from attack.tally import Tally, WrongError
from bilevel.errors import UserError

NAME, SHARE = "edited losses", 30


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    for i in range(tries):
        tally.attempt(f"edit {i}", lambda: _edited(2 + chance.random()))


def _edited(factor: float) -> None:
    shutil.rmtree("edited", ignore_errors=True)
    run("edited", STEPS - 1)
    try:
        run("edited", STEPS, factor)
    except ValueError as error:
        raise UserError(str(error)) from error
    raise WrongError("a run went on although its loss was edited")
