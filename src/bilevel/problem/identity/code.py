"""What a function's code does, whatever its lines, comments, docstrings and locals are called.

Instructions are compared one by one. A constant counts only where an instruction uses it, which
leaves out docstrings, and a local variable by the order in which locals first appear.
"""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Iterator
from types import CodeType
from typing import Any

_NAMED = {"LOAD_GLOBAL", "LOAD_NAME"}


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
    return [
        instruction.argval
        for part in _nested(code)
        for instruction in dis.get_instructions(part)
        if instruction.opcode in dis.hasconst and not isinstance(instruction.argval, CodeType)
    ]


def names_in(code: CodeType) -> tuple[set[str], set[str]]:
    """The global names that it reads, and all names, attributes among them."""
    parts = list(_nested(code))
    read = {
        instruction.argval
        for part in parts
        for instruction in dis.get_instructions(part)
        if instruction.opname in _NAMED
    }
    return read, {name for part in parts for name in part.co_names}


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
