"""The page of the command line, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from bilevel.cli.main import build

_HEAD = """\
# The command line

`pip install ".[cli]"` installs the command `bilevel`. Results go to stdout; notes, progress
bars and errors go to stderr. The exit code is 0 on success, 2 for an error that you can fix (the
message says how), and 130 or 143 after Ctrl-C or SIGTERM. With `NO_COLOR=1`, and in pipes, the
output is plain text. `bilevel --install-completion` installs completion for your shell.

"""


def pages() -> dict[str, str]:
    """reference/command-line.md."""
    whole = typer.main.get_command(build())
    parts = [_section(words, command) for words, command in walked(whole, ("bilevel",))]
    return {"reference/command-line.md": _HEAD + "\n".join(parts)}


def walked(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    for name, below in sorted(command.commands.items()):
        if hasattr(below, "commands"):
            yield from walked(below, (*words, name))
        else:
            yield (*words, name), below


def _section(words: tuple[str, ...], command: Any) -> str:
    rows = []
    for part in command.params:
        if part.name != "help" and not getattr(part, "hidden", False):
            names = ", ".join(f"`{name}`" for name in (*part.opts, *part.secondary_opts))
            if part.param_type_name == "argument":
                names = f"`{(part.metavar or part.name).upper()}`"
            rows.append(f"| {names} | {_cell(part)} |")
    table = "| argument | meaning |\n|---|---|\n" + "\n".join(rows) + "\n\n" if rows else ""
    text = _paragraphs(command.help or "")
    return f"## {' '.join(words)}\n\n{text}\n\n{table}{_paragraphs(command.epilog or '')}\n"


def _cell(part: Any) -> str:
    text = (getattr(part, "help", "") or "").replace("\\[", "[").replace("|", "\\|")
    default = part.default
    if part.required:
        text += " Required."
    elif "default" not in text and default not in (None, False, "", ()) and not callable(default):
        text += f" Default: {getattr(default, 'value', default)}."
    return text


def _paragraphs(text: str) -> str:
    return re.sub(r"\n\n+", "\n\n", text.replace("\f", "").strip())
