"""What is wrong with the words of a command, in one sentence with the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperGroup

from bilevel.errors import UserError, quoted

# The parser's base of errors; releases of Typer differ in where its parser is.
WrongWordsError: type[Any] = typer.BadParameter.__mro__[2]


class Commands(TyperGroup):
    """A group of commands that refuses an option with one value if it is given twice."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types_of_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        found: Any = super().resolve_command(ctx, args)
        _, command, words = found
        _without_types_of_flags(command.get_params(ctx))
        if not hasattr(command, "commands"):
            _check_given_once(command, words)
        return found


def _without_types_of_flags(params: Any) -> Any:
    """Some releases of Typer show `--force <bool>`, as if a value had to follow."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = param.metavar or ""
    return params


def _check_given_once(command: Any, words: list[str]) -> None:
    valued = {
        name: option
        for option in command.params
        if option.param_type_name == "option" and not option.is_flag
        for name in option.opts
    }
    given: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word == "--":
            return
        name, equals, value = word.partition("=")
        option = valued.get(name)
        if option is None:
            continue
        value = value if equals else next(rest, "")
        if option.name in given and not option.multiple:
            raise UserError(
                f"{name} was given twice, as {quoted(given[option.name])} and as {quoted(value)}: "
                "leave one out"
            )
        given[option.name] = value


def split(values: Iterable[str]) -> list[str]:
    """What a repeatable option was given, each perhaps several with commas."""
    return [name for value in values for part in value.split(",") if (name := part.strip())]


def examples(command: Any, words: str) -> list[str]:
    """The calls that the help of a command shows; `words` are those that call it."""
    text = " ".join(f"{command.help} {command.epilog or ''}".split())
    return [call for call in re.findall(r"`([^`]+)`", text) if f" {words} " in f" {call} "]


def sentence(error: Any) -> str:
    """What the parser found wrong, and what to type instead."""
    context, what = error.ctx, re.sub(r"\s+", " ", error.format_message()).strip().rstrip(".")
    what = what.replace("Value error, ", "")  # which some releases of Typer put first
    if context is None:
        return what
    path = f"bilevel {context.command_path.partition(' ')[2]}".strip()
    shown = [] if hasattr(context.command, "commands") else examples(context.command, path)
    example = f", as in: {shown[0]}" if what.startswith("Missing") and shown else ""
    return f"{path}: {what[0].lower()}{what[1:]}{example} (see {path} --help)"
