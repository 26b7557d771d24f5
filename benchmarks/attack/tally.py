"""What came of the tries."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bilevel.errors import UserError


class WrongError(Exception):
    """An answer that is not the right one."""


class LostError(Exception):
    """A step that was reported as kept, and is gone."""


@dataclass
class Tally:
    """Of one attack: how many tries ended how, and the first of the bad ones."""

    name: str
    tries: int = 0
    refused: int = 0
    right: int = 0
    tracebacks: int = 0
    wrong: int = 0
    lost: int = 0
    cpu: float = 0
    wall: float = 0
    examples: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        return self.tracebacks + self.wrong + self.lost

    def attempt(self, what: str, act: Callable[[], Any]) -> None:
        """One try: a refusal in a sentence and a right answer are well; all else is not."""
        self.tries += 1
        try:
            act()
            self.right += 1
        except UserError as error:
            self.refused += 1
            if len(str(error)) > 3000:
                self._bad("wrong", what, f"a message of {len(str(error)):,} characters")
        except WrongError as error:
            self._bad("wrong", what, str(error))
        except LostError as error:
            self._bad("lost", what, str(error))
        except Exception as error:
            self._bad(
                "tracebacks", what, traceback.format_exception(error)[-2][-300:] + repr(error)
            )

    def _bad(self, kind: str, what: str, example: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < 5:
            self.examples.append(f"{what}: {example}")


def expect(condition: object, otherwise: str) -> None:
    """Raise `WrongError` unless the condition holds."""
    if not condition:
        raise WrongError(otherwise)
