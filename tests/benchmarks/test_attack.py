"""A small seeded part of the attack: whatever is thrown at it, no stack and no wrong result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from attack.run import attack, table  # noqa: E402
from attack.tally import LostError, Tally, WrongError  # noqa: E402

from bilevel.errors import UserError  # noqa: E402

QUICK = (
    "odd arguments",
    "pictures",
    "tables",
    "stored rows",
    "experiments",
    "checkpoints",
    "data sets",
    "results",
)


@pytest.mark.parametrize("name", QUICK)
def test_every_try_is_refused_or_right(name: str) -> None:
    (tally,) = attack(60, seed=1, only=name)
    assert (tally.tries, tally.bad) == (60, 0), tally.examples
    assert tally.refused > 0
    assert tally.right > 0


def test_the_tally_tells_the_endings_apart() -> None:
    tally = Tally("all")
    failures = (UserError("no"), WrongError("2"), LostError("step 3"), KeyError("a"), None)
    for failure in failures:

        def act(failure: Exception | None = failure) -> None:
            if failure:
                raise failure

        tally.attempt("try", act)
    tally.attempt("flood", lambda: (_ for _ in ()).throw(UserError("x" * 5000)))
    assert (tally.tries, tally.right, tally.refused) == (6, 1, 2)
    assert (tally.wrong, tally.lost, tally.tracebacks) == (2, 1, 1)
    assert "| all | 6 | 2 | 1 | 1 | 2 | 1 | 0 | 0 |" in table([tally])
