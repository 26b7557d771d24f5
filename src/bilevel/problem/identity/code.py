"""What a function's code does, regardless of lines, comments, docstrings and names of locals.

Instructions are compared one by one. A constant counts only where an instruction uses it, which
leaves out docstrings, and a local variable by the order in which locals first appear.
"""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import resolve_name
from types import CodeType
from typing import Any

from bilevel.problem.identity.own import package_of

_NAMED = {"LOAD_GLOBAL", "LOAD_NAME"}
_ASKS = {"open", "globals", "eval", "exec", "__import__", "input"}  # built-in functions
# By package, the names that reach outside the program; None means all of them.
_ASKED: dict[str, set[str] | None] = {
    "os": {"environ", "getenv", "open", "popen", "system", "listdir", "scandir"},
    "sys": {"modules", "argv"},
    "numpy": {"random", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"},
    "torch": {"load", "from_file"},
    "pandas": {f"read_{kind}" for kind in ("csv", "excel", "feather", "json", "parquet", "sql")},
    "pathlib": {"read_text", "read_bytes", "open"},
    "io": {"open", "open_code", "FileIO"},
    "codecs": {"open"},
    "datetime": {"now", "today", "utcnow"},
    **dict.fromkeys(("importlib", "random", "secrets", "time", "urllib", "http", "socket")),
    **dict.fromkeys(("linecache", "fileinput", "glob", "sqlite3", "shelve", "subprocess")),
    **dict.fromkeys(("gzip", "bz2", "lzma", "zipfile", "tarfile")),
}
_CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT"}


def digest_of_code(code: CodeType) -> str:
    """Equal for code that does the same with its constants, whatever their values."""
    found, cells = hashlib.sha256(), dict[str, int]()
    for part in _nested(code):
        places: dict[str, int] = {}
        for instruction in dis.get_instructions(part):
            word = f"{instruction.opname} {_argument(instruction, places, cells)};"
            found.update(word.encode())
        found.update(part.co_exceptiontable)
        found.update(str((part.co_argcount, part.co_kwonlyargcount, part.co_flags)).encode())
    return found.hexdigest()[:12]


def constants_of(code: CodeType) -> list[Any]:
    """The constants that its instructions use, in order, those of nested functions included."""
    # By index: Python 3.11 does not resolve the names of keyword arguments.
    found = (
        part.co_consts[instruction.arg or 0]
        for part in _nested(code)
        for instruction in dis.get_instructions(part)
        if instruction.opcode in dis.hasconst
    )
    return [constant for constant in found if not isinstance(constant, CodeType)]


@lru_cache(maxsize=4096)  # a loop of the user's own asks at each of its steps
def names_in(code: CodeType) -> tuple[set[str], set[str]]:
    """The global names that it reads; and all names, with attributes and words for `getattr`."""
    parts = list(_nested(code))
    read = {
        instruction.argval
        for part in parts
        for instruction in dis.get_instructions(part)
        if instruction.opname in _NAMED
    }
    texts = {text for text in constants_of(code) if isinstance(text, str) and text.isidentifier()}
    return read, texts.union(*(part.co_names for part in parts))


@lru_cache(maxsize=4096)
def imports_in(code: CodeType, package: str) -> list[str]:
    """The full names of the modules that it imports."""
    found, level = set[str](), 0
    for part in _nested(code):
        before: list[Any] = []
        for instruction in dis.get_instructions(part):
            if instruction.opname == "IMPORT_NAME":
                level = next((c for c in before[-2:] if isinstance(c, int)), 0)
                found.add(resolve_name("." * level + instruction.argval, package or None))
            elif instruction.opname in _CONSTANTS:
                before.append(instruction.argval)
    return sorted(found)


def asked_in(code: CodeType, known: Mapping[str, Any]) -> list[str]:
    """What it reads besides values: files, the environment, global random numbers.

    Args:
        code: of a function.
        known: its globals and closure variables, by name.
    """
    read, _ = names_in(code)
    names = {name for part in _nested(code) for name in part.co_names}
    found = {name for name in read & _ASKS if name not in known}
    used = [known[name] for name in (read | {*code.co_freevars}) & known.keys()]
    paths = {(package_of(value), str(getattr(value, "__name__", ""))) for value in used}
    inside = imports_in(code, str(known.get("__package__") or ""))
    for package, path in paths | {(name.partition(".")[0], name) for name in inside}:
        if package in _ASKED:
            asked = _ASKED[package]
            words = names.union(path.split("."))
            found |= {package} if asked is None else {f"{package}.{a}" for a in asked & words}
    return sorted(found)


def _nested(code: CodeType) -> Iterator[CodeType]:
    """The code, and that of functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _argument(instruction: dis.Instruction, places: dict[str, int], cells: dict[str, int]) -> Any:
    """What an instruction works on, unchanged if a local variable is renamed."""
    kind, value = instruction.opcode, instruction.argval
    if kind in dis.hasconst:
        return "constant"
    if kind in dis.haslocal or kind in dis.hasfree:
        known = cells if kind in dis.hasfree else places
        names = value if isinstance(value, tuple) else (value,)
        return [known.setdefault(name, len(known)) for name in names]
    return value if kind in dis.hasname or kind in dis.hasjrel else instruction.arg
