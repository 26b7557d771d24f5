"""Nothing heavy is loaded before it is needed, as seen in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from bilevel.cli.main import build

# Runs commands one after the other: of each, how it ended, what it said, and which heavy packages
# it was the first to bring.
_PROGRAM = """
import contextlib, io, json, sys
from bilevel.cli.main import main

HEAVY = set("torch numpy scipy sklearn pandas pyarrow matplotlib plotly optuna".split())
found, known = {}, set()
for words in json.loads(sys.argv[1]):
    sys.argv = ["bilevel", *words]
    code = None
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            main()
        except SystemExit as end:
            code = end.code
    brought = (HEAVY & set(sys.modules)) - known
    known |= brought
    found[" ".join(words)] = [code, said.getvalue(), sorted(brought)]
print(json.dumps(found))
"""


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and sub-command, the whole first."""
    yield path
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


def whole() -> TyperGroup:
    command = typer.main.get_command(build())
    assert isinstance(command, TyperGroup)
    return command


COMMANDS = [" ".join(words) for words in commands(whole())]


def needy(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The commands that do nothing without an argument."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from needy(command, (*path, name))
        elif any(parameter.required for parameter in command.params) or name == "bench":
            yield " ".join((*path, name))


NEEDY = [*needy(whole()), "bench no-such-problem", "no-such-command"]


@cache
def helped() -> dict[str, Any]:
    """What all the helps, and calls that lack something, gave in one fresh process."""
    asked = [[*command.split(), "--help"] for command in COMMANDS]
    asked += [["--version"], *(command.split() for command in NEEDY)]
    program = [sys.executable, "-c", _PROGRAM, json.dumps(asked)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_command_and_sub_command_is_asked() -> None:
    assert {"", "clean", "run", "few-shot", "few-shot train", "data get"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda name: name or "bilevel")
def test_help_imports_neither_torch_nor_anything_else_that_is_heavy(command: str) -> None:
    code, said, brought = helped()[f"{command} --help".strip()]
    assert code == 0
    assert f"Usage: bilevel {command}".strip() in said
    assert brought == []


@pytest.mark.parametrize("command", NEEDY)
def test_what_is_missing_is_told_before_torch_is_imported(command: str) -> None:
    code, _, brought = helped()[command]
    assert code == 2
    assert "torch" not in brought


def test_the_version_needs_no_torch() -> None:
    code, said, brought = helped()["--version"]
    assert code == 0
    assert said.startswith("bilevel ")
    assert brought == []


def test_the_name_bilevel_brings_no_torch() -> None:
    code = "import sys, bilevel; dir(bilevel); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_usual_names_and_a_first_dense_step_bring_no_scipy_parts() -> None:
    code = """
import sys, torch, bilevel
rows, labels = torch.eye(10), torch.arange(10)
problem = bilevel.softmax_problem(
    (rows, labels), (rows, labels), weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1))
bilevel.minimize(problem, bilevel.algorithms.StocBiO(), steps=1)
sys.exit(any(f"scipy.{part}" in sys.modules for part in ("sparse", "optimize")))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
