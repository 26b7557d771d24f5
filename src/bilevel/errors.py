"""Mistakes that the user can fix, and how messages quote what the user gave."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_MOST = 80  # characters of a quotation
_NAMES = 10  # of a list


class UserError(ValueError):
    """Bad input to a command or loader: its text says what is wrong and what to do.

    The command line prints it without a stack trace and exits with code 2.
    """


@contextmanager
def refusing(what: str, *kinds: type[Exception], advice: str = "") -> Iterator[None]:
    """Inside, errors of these kinds are the user's to mend: what is wrong, why, and what to do.

    >>> with refusing("notes.txt is no number", ValueError):
    ...     float("abc")
    Traceback (most recent call last):
    bilevel.errors.UserError: notes.txt is no number: could not convert string to float: 'abc'
    """
    try:
        yield
    except UserError:  # which says it already
        raise
    except kinds as error:
        raise UserError(f"{what}: {_reason(error)}{advice}") from error


def _reason(error: Exception) -> str:
    """An error in its own words: of one line, as a parser's may have pages."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # A KeyError has nothing but the key in its text.
    told = "" if isinstance(error, LookupError) else str(error)
    return short(" ".join(told.split()) or repr(error), 200)


def pick(what: str, name: Any, known: Mapping[str, T]) -> T:
    """The one of this name.

    >>> pick("fruit", "pear", {"apple": 1, "plum": 2})
    Traceback (most recent call last):
    bilevel.errors.UserError: there is no fruit 'pear': choose one of apple, plum
    """
    if name not in known:
        raise UserError(f"there is no {what} {quoted(name)}: choose one of {', '.join(known)}")
    return known[name]


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
