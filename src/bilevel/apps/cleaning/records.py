"""Tables in JSON: one object a line, a list of them, or what a service gives around such a list."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from bilevel.errors import UserError, quoted


def records(path: Path) -> pd.DataFrame:
    """A row for each object; what is nested becomes columns a.b.

    Raises:
        UserError: a line is no JSON, or a row is no object.
    """
    text = path.read_text(encoding="utf-8-sig")
    rows = _rows(path, text)
    if re.search(r"\\u[dD][89a-fA-F]", text):  # halves of characters, which nothing can write
        rows = json.loads(json.dumps(rows, ensure_ascii=False).encode("utf-8", "replace"))
    if strange := [row for row in rows if not isinstance(row, dict)]:
        raise UserError(
            f'{path} holds {quoted(strange[0])} where a row should be an object, as {{"size": 3}}'
        )
    return pd.json_normalize(rows)


def _rows(path: Path, text: str) -> list[Any]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        # Not splitlines: within a text there may be other ends of lines.
        lines = enumerate(text.split("\n"), 1)
        return [_line(path, number, line) for number, line in lines if line.strip()]
    if isinstance(whole, dict):
        lists = [value for value in whole.values() if isinstance(value, list)]
        return lists[0] if len(lists) == 1 else [whole]
    return whole if isinstance(whole, list) else [whole]


def _line(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"line {number} of {path} is no JSON ({error.msg}): each line must be an object, or "
            "the whole a list of them"
        ) from None
