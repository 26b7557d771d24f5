"""Mistakes that the user can fix, and how messages quote what the user gave."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_MOST = 80  # characters of a quotation
_NAMES = 10  # of a list


class UserError(ValueError):
    """Bad input to a command or loader: its text says what is wrong and what to do.

    The command line prints it without a stack trace and exits with code 2.
    """


def short(text: Any, most: int = _MOST) -> str:
    """A text, cut in its middle where it would flood a message: values may have megabytes.

    >>> short("folder/" * 20 + "absent.toml", 24)
    'folder/folde…absent.toml'
    """
    whole = str(text)
    tail = (most - 1) // 2
    return whole if len(whole) <= most else f"{whole[: most - 1 - tail]}…{whole[-tail:]}"


def quoted(value: Any) -> str:
    """A value as Python writes it, cut like `short`.

    >>> quoted("label"), len(quoted("a" * 100)), quoted(1.5)
    ("'label'", 80, '1.5')
    """
    # The repr of a long text would be a second copy of it.
    if isinstance(value, str) and len(value) > 2 * _MOST:
        value = value[:_MOST] + value[-_MOST:]
    elif isinstance(value, bytes):
        value = value[:_MOST]
    try:
        return short(repr(value))
    except Exception:  # a class of the user's: the message matters more
        return f"a {type(value).__name__}"


def listed(values: Collection[Any], most: int = _NAMES) -> str:
    """The first few values, each quoted.

    >>> listed(["a", "b", "c"], 2)
    "['a', 'b', ...]"
    """
    shown = [quoted(value) for value, _ in zip(values, range(most), strict=False)]
    return f"[{', '.join(shown)}{', ...' if len(values) > most else ''}]"
