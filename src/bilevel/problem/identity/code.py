"""What a function's code does, whatever its lines, comments, docstrings and locals are called.

Instructions are compared one by one. A constant counts only where an instruction uses it, which
leaves out docstrings, and a local variable by the order in which locals first appear.
"""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Iterator, Mapping
from importlib.util import resolve_name
from types import CodeType
from typing import Any

from bilevel.problem.identity.own import package_of

_NAMED = {"LOAD_GLOBAL", "LOAD_NAME"}
_ASKS = {"open", "globals", "eval", "exec", "__import__", "input"}  # functions of Python's
# Packages, and what is asked of them; None is anything.
_ASKED: dict[str, set[str] | None] = {
    "os": {"environ", "getenv"},
    "sys": {"modules", "argv"},
    "numpy": {"random", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"},
    "torch": {"load", "from_file"},
    "pandas": {f"read_{kind}" for kind in ("csv", "excel", "feather", "json", "parquet", "sql")},
    "pathlib": {"read_text", "read_bytes", "open"},
    "datetime": {"now", "today", "utcnow"},
    **dict.fromkeys(("importlib", "random", "secrets", "time", "urllib")),
}
_CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT"}


def digest_of_code(code: CodeType) -> str:
    """The same for code that does the same with its constants, whatever those are."""
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
    """Those that its instructions use, nested functions' among them, in their order."""
    # By its place: Python 3.11 does not tell the names of keyword arguments.
    found = (
        part.co_consts[instruction.arg or 0]
        for part in _nested(code)
        for instruction in dis.get_instructions(part)
        if instruction.opcode in dis.hasconst
    )
    return [constant for constant in found if not isinstance(constant, CodeType)]


def names_in(code: CodeType) -> tuple[set[str], set[str]]:
    """The global names that it reads, and all names: attributes, and words for `getattr`."""
    parts = list(_nested(code))
    read = {
        instruction.argval
        for part in parts
        for instruction in dis.get_instructions(part)
        if instruction.opname in _NAMED
    }
    texts = {text for text in constants_of(code) if isinstance(text, str) and text.isidentifier()}
    return read, texts.union(*(part.co_names for part in parts))


def imports_in(code: CodeType, package: str) -> list[str]:
    """The modules that it imports itself, by their whole names."""
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
    """What it reads that is no value: files, the environment, the random numbers of others.

    Args:
        code: of a function.
        known: its globals, and what it is closed over.
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
    """What an instruction works on, in words that no renaming of a local variable changes."""
    kind, value = instruction.opcode, instruction.argval
    if kind in dis.hasconst:
        return "constant"
    if kind in dis.haslocal or kind in dis.hasfree:
        known = cells if kind in dis.hasfree else places
        names = value if isinstance(value, tuple) else (value,)
        return [known.setdefault(name, len(known)) for name in names]
    return value if kind in dis.hasname or kind in dis.hasjrel else instruction.arg
