"""Cells of tables that people open in a spreadsheet."""

from __future__ import annotations

import re

_RUN = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the start of a formula
# Digits with signs of thousands, fractions, shares and prices: nothing that could be run.
_NUMBER = re.compile(r"[+-]?(?=\D*\d)[\d.,' \u00a0\u202f%€$£¥]+([eE][+-]?\d+)?")


def guarded(text: str) -> str:
    """A text as a spreadsheet shows it and never runs it: an apostrophe before a formula.

    >>> [guarded(text) for text in ("=1+1", "-x", "-1.5", "-1.234,5 €", "007")]
    ["'=1+1", "'-x", '-1.5', '-1.234,5 €', '007']
    """
    return f"'{text}" if text.startswith(_RUN) and not _NUMBER.fullmatch(text) else text
