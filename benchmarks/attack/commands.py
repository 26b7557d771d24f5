"""The command line, in this process or in one of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import typer

from bilevel.cli import main as module
from bilevel.errors import UserError

from .tally import WrongError


@cache
def built() -> Any:
    """Building the command takes longer than most tries."""
    return typer.main.get_command(module.build())


def call(*words: str) -> None:
    """Run a command here; a refusal with code 2 is a UserError, another failure an error."""
    before, sys.argv, build = sys.argv, ["bilevel", *words], module.build
    made, said = built(), io.StringIO()
    module.build = lambda: made
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            module.main()
    except SystemExit as ended:
        if ended.code == 2:
            raise UserError(said.getvalue()) from ended
        if ended.code:
            raise WrongError(f"exit code {ended.code}: {said.getvalue()[-200:]}") from ended
    finally:
        sys.argv, module.build = before, build


def start(*words: str, more: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Run a command, or `-c PROGRAM`, in a process of its own."""
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source, **(more or {})}
    python = [sys.executable] if words[0] == "-c" else [sys.executable, "-m", "bilevel"]
    return subprocess.Popen(
        [*python, *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def judge(process: subprocess.Popen[str]) -> None:
    """Wait for a process: like `call`, and a stack trace is an error."""
    _, said = process.communicate(timeout=300)
    if "Traceback" in said:
        raise RuntimeError(said[-400:])
    if process.returncode == 2:
        raise UserError(said)
    if process.returncode:
        raise WrongError(f"exit code {process.returncode}: {said[-200:]}")
