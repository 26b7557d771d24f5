"""Text, JSON and TOML, written whole; what someone may have damaged is refused by name."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from bilevel.durable.files import write_text
from bilevel.durable.folders import check_folder
from bilevel.durable.regular import check_regular
from bilevel.errors import UserError, quoted, refusing

_UNREADABLE = ValueError, RecursionError  # the latter where it is nested too deep
Json = TypeVar("Json", dict[str, Any], list[Any])


def write_json(file: Path, content: Any) -> None:
    """Write plain data, completely or not at all."""
    write_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(file: Path, kind: type[Json]) -> Json:
    """What a file holds, or nothing of its kind if there is no file."""
    if not file.is_file():
        return kind()
    return parse_json(read_text(file), kind, str(file))


def keep_plan(file: Path, plan: Any, what: str) -> None:
    """Write into a new folder what it is for; refuse one that is for something else."""
    from bilevel.problem.identity.words import words_of
    from bilevel.runs.checkpoints.identity import differences

    plan = json.loads(json.dumps(plan))
    if not file.is_file():
        check_folder(file.parent, force=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, plan)
    elif (there := read_json(file, dict)) != plan:
        told = "; ".join(differences(words_of(there), words_of(plan))[:3])
        raise UserError(
            f"the folder {file.parent} holds {what} with other settings ({told}): choose another, "
            "or delete it"
        )


def parse_json(text: str, kind: type[Json], where: str) -> Json:
    """What a text holds, which must be of this kind; `where` names it in messages."""
    with refusing(f"{where} is not JSON", *_UNREADABLE):
        value = json.loads(text)
    if not isinstance(value, kind):
        raise UserError(f"{where} should hold a JSON {kind.__name__}, but has {quoted(text)}")
    return value


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """What a text holds; `where` names it in messages."""
    with refusing(f"{where} is not valid TOML", *_UNREADABLE):
        return tomllib.loads(text)


def read_text(file: Path) -> str:
    """The text of a file."""
    check_regular(file)
    with refusing(f"cannot read {file}", OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
