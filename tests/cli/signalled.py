"""`bilevel` commands in processes of their own, to which signals are sent.

The processes are forked from one that has everything imported (this file, as a script), so that
each costs a fraction of a second. The script reads requests from stdin, a line of JSON each, and
answers on stdout: {"folder": ..., "arguments": [...]} begins a command and answers its number;
{"ended": number} answers its exit code, or null if it goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a process ended, and what it showed."""

    code: int
    out: str
    err: str


class Commands:
    """The process that the others are forked from; a context manager."""

    def __enter__(self) -> Commands:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._server.stdin
        assert self._server.stdout
        print(json.dumps(request), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def begin(self, folder: Path, *arguments: str) -> Command:
        number = self.ask({"folder": str(folder), "arguments": arguments})
        return Command(self, folder, number)


class Command(NamedTuple):
    """A command that has begun."""

    commands: Commands
    folder: Path
    number: int

    def send(self, signal: int, when: Callable[[], object]) -> Ended:
        """Send a signal as soon as something has come true, and see how the command ends."""
        while not when():
            code = self.commands.ask({"ended": self.number})
            if code is not None:
                return self._shown(code)
            time.sleep(0.01)
        os.kill(self.number, signal)
        return self.end()

    def end(self) -> Ended:
        while (code := self.commands.ask({"ended": self.number})) is None:
            time.sleep(0.01)
        return self._shown(code)

    def _shown(self, code: int) -> Ended:
        out, err = (self.folder / f"{self.number}.{name}" for name in ("out", "err"))
        return Ended(code, out.read_text(), err.read_text())


def _run(folder: str, arguments: list[str]) -> None:
    """In the forked process: the command, as if typed in the folder."""
    from bilevel.cli.main import main

    os.chdir(folder)
    os.environ["BILEVEL_DATA"] = f"{folder}/data"
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(f"{os.getpid()}.{name}", os.O_CREAT | os.O_WRONLY)
        os.dup2(file, descriptor)
    sys.argv = ["bilevel", *arguments]
    code: Any = 1
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    import dataclasses

    from bilevel.datasets import fc100 as module

    # The few small images of `few_shot_pictures`.
    classes = {"train": 5, "validation": 4, "test": 4}
    module.fc100 = dataclasses.replace(
        module.fc100, classes=classes, shape=(16, 16, 3), fewest_a_class=10
    )
    for line in sys.stdin:
        request, answer = json.loads(line), None
        if "folder" in request:
            answer = os.fork()
            if answer == 0:
                _run(request["folder"], request["arguments"])
        else:
            number, status = os.waitpid(request["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if number else None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
