"""Text, JSON and TOML, written whole; what someone may have damaged is refused by name."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from bilevel.durable.files import write_text
from bilevel.durable.regular import check_regular
from bilevel.errors import UserError, quoted, short

Json = TypeVar("Json", dict[str, Any], list[Any])


def write_json(file: Path, content: Any) -> None:
    """Write plain data, completely or not at all."""
    write_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(file: Path, kind: type[Json]) -> Json:
    """What a file holds, or nothing of its kind if there is no file."""
    if not file.is_file():
        return kind()
    return parse_json(read_text(file), kind, str(file))


def parse_json(text: str, kind: type[Json], where: str) -> Json:
    """What a text holds, which must be of this kind; `where` names it in messages."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # nested too deep, or a number too long
        raise UserError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, kind):
        raise UserError(f"{where} should hold a JSON {kind.__name__}, but has {quoted(text)}")
    return value


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """What a text holds; `where` names it in messages."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # nested too deep, or a number too long
        raise UserError(f"{where} is not valid TOML: {short(error)}") from error


def read_text(file: Path) -> str:
    """The text of a file."""
    check_regular(file)
    try:
        return file.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
