"""Python programs in processes that are forked from one with torch and the like loaded.

A fresh interpreter needs seconds for these imports; a forked one has them. This file is also the
script of the server that forks: it reads requests from stdin, a line of JSON each, and answers on
stdout. {"folder", "arguments", ...} begins a program and answers its number; {"ended"} answers the
exit code of that number, or null if it goes on.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
LOADED = (
    "torch",
    "pytest",
    "pandas",
    "sklearn.linear_model",
    "torch.fx.experimental.symbolic_shapes",
)

_LOCK = threading.Lock()


class Ended(NamedTuple):
    """How a process ended, and what it showed."""

    code: int
    out: str
    err: str


class Program(NamedTuple):
    """A program that has begun, and the folder that its output goes to."""

    output: Path
    number: int

    def send(self, number: int, when: Callable[[], object]) -> Ended:
        """Send a signal as soon as something has come true, and see how the program ends."""
        while not when():
            code = _ask({"ended": self.number})
            if code is not None:
                return self._shown(code)
            time.sleep(0.01)
        os.kill(self.number, number)
        return self.end()

    def end(self) -> Ended:
        while (code := _ask({"ended": self.number})) is None:
            time.sleep(0.01)
        return self._shown(code)

    def _shown(self, code: int) -> Ended:
        out, err = ((self.output / name).read_text() for name in ("out", "err"))
        return Ended(code, out, err)


def begin(folder: Path, *arguments: str, **environment: str) -> Program:
    """`python *arguments` in a folder: -m MODULE, -c CODE or a script."""
    output = tempfile.mkdtemp(dir=_outputs().name)
    number = _ask(
        {
            "folder": str(folder),
            "output": output,
            "arguments": arguments,
            "environment": environment,
        }
    )
    return Program(Path(output), number)


@cache
def _outputs() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def _server() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def stop() -> None:
    """At the end of all tests."""
    if _server.cache_info().currsize:
        # Killed: the end of its stdin might never come, as workers that a DataLoader forked
        # from this process hold that pipe open as well.
        with _server() as server:
            server.kill()
        _outputs().cleanup()


def _ask(request: dict[str, Any]) -> Any:
    with _LOCK:
        server = _server()
        assert server.stdin
        assert server.stdout
        print(json.dumps(request), file=server.stdin, flush=True)
        return json.loads(server.stdout.readline())


def _run(arguments: list[str]) -> None:
    """As the interpreter would."""
    kind, *rest = arguments
    sys.path[0] = os.getcwd()
    sys.argv = [kind, *rest[1:]]
    if kind == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0], sys.argv = str(Path(kind).parent), arguments
        runpy.run_path(kind, run_name="__main__")


def _program(folder: str, output: str, arguments: list[str], environment: dict[str, str]) -> None:
    """In the forked process, which ends here."""
    os.chdir(folder)
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{output}/{name}", os.O_CREAT | os.O_WRONLY), descriptor)
    code: Any = 1
    try:
        _run(arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    for name in LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        request, answer = json.loads(line), None
        if "ended" in request:
            number, status = os.waitpid(request["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if number else None
        else:
            answer = os.fork()
            if answer == 0:
                _program(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
