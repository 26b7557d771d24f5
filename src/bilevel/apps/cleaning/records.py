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
        return _inside(whole)
    return whole if isinstance(whole, list) else [whole]


def _inside(whole: dict[str, Any]) -> list[Any]:
    """The rows in what a program or a service has written: by columns, or with other things
    around them.

    >>> _inside({"a": [1, 2], "b": [3, 4]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
    >>> _inside({"page": 1, "found": {"items": [{"a": 1}, {"a": 2}]}})
    [{'a': 1}, {'a': 2}]
    """
    cells = whole.get("data")
    if "columns" in whole and isinstance(cells, list) and isinstance(cells[0], list):
        return [dict(zip(whole["columns"], row, strict=True)) for row in cells]
    parts = list(whole.values())
    if len(parts) > 1 and all(isinstance(part, dict) for part in parts):  # as pandas writes it
        if all(name.isdigit() for name in whole):
            return parts
        parts = [list(part.values()) for part in parts if part.keys() == parts[0].keys()]
    lists = [part for part in parts if isinstance(part, list)]
    if 1 < len(lists) == len(whole) and len({len(part) for part in lists}) == 1:
        return [dict(zip(whole, row, strict=True)) for row in zip(*lists, strict=True)]
    inner = [part for part in whole.values() if isinstance(part, dict)]
    if len(lists) == 1:
        return lists[0]
    return _inside(inner[0]) if len(inner) == 1 and not lists else [whole]


def _line(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"line {number} of {path} is no JSON ({error.msg}): each line must be an object, or "
            "the whole a list of them"
        ) from None
