"""Claims about errors: what is wrong, how to provoke it, which error comes, and its text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest


def claims(*cases: tuple[str, Callable[[], Any], type[Exception], str]) -> Any:
    """Parametrise over (what is wrong, how to provoke it, the error, its text)."""
    return pytest.mark.parametrize(
        ("provoke", "error", "text"), [case[1:] for case in cases], ids=[case[0] for case in cases]
    )


def assert_raises(provoke: Callable[[], Any], error: type[Exception], text: str) -> None:
    """The text is a pattern whose blanks stand for anything between the words that matter."""
    with pytest.raises(error) as raised:
        provoke()
    pattern = text.replace(" … ", ".*")
    assert re.search(pattern, str(raised.value), re.DOTALL), str(raised.value)
