"""Write TOML: what the standard library can read, but not write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, Any]) -> str:
    """A table as TOML text. Two levels of tables have headers; deeper ones are written inline.

    Example:
        >>> print(to_toml({"name": "a", "list": [{"label": "x", "settings": {"steps": 5}}]}))
        name = "a"
        <BLANKLINE>
        [[list]]
        label = "x"
        <BLANKLINE>
        [list.settings]
        steps = 5
        <BLANKLINE>
    """
    return "\n".join(_blocks("", "", table))


def _blocks(header: str, path: str, table: Mapping[str, Any]) -> Iterator[str]:
    deepest = path.count(".") >= 1
    nested = {
        key: value
        for key, value in table.items()
        if not deepest and (_is_table(value) or _is_table_list(value))
    }
    plain = {key: value for key, value in table.items() if key not in nested}
    if plain or not nested or header.startswith("[["):
        yield header + _lines(plain)
    for key, value in nested.items():
        inside = f"{path}.{_key(key)}" if path else _key(key)
        if _is_table(value):
            yield from _blocks(f"[{inside}]\n", inside, value)
        else:
            for item in value:
                yield from _blocks(f"[[{inside}]]\n", inside, item)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_table_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_table, value))


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if _is_table(value):
        inside = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{{inside}}}"
    raise TypeError(f"TOML has no {type(value).__name__}: {value!r}")
