"""What a function's code does, regardless of lines, comments, docstrings and names of locals.

Instructions are compared one by one. A constant counts only where an instruction uses it, which
leaves out docstrings, a parameter by its place, and any other variable by when it first appears.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import resolve_name
from types import CodeType
from typing import Any

from bilevel.problem.identity.own import package_of

_NAMED = {"LOAD_GLOBAL", "LOAD_NAME"}
_ASKS = {"open", "globals", "eval", "exec", "__import__", "input"}  # built-in functions
# Attributes that lead to what no value of the function holds.
_LEADS = {"__subclasses__", "__doc__", "__annotations__", "f_globals", "f_locals", "f_back"}
_OF_PANDAS = "clipboard csv excel feather fwf hdf html json orc parquet pickle sas spss sql stata"
# By package, the names that reach outside the program; None means all of them.
_ASKED: dict[str, set[str] | None] = {
    "os": {
        *("environ", "environb", "getenv", "getenvb", "open", "popen", "system", "listdir"),
        *("scandir", "stat", "walk", "exists", "isfile", "getsize", "getmtime", "getcwd", "getpid"),
    },
    "sys": {"modules", "argv"},
    "numpy": {"random", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"},
    "torch": {"load", "from_file", "ops"},
    "inspect": {"getsource", "getsourcelines", "getsourcefile", "currentframe", "stack"},
    "pandas": {f"read_{kind}" for kind in (*_OF_PANDAS.split(), "table", "xml")},
    "pathlib": {"read_text", "read_bytes", "open", "stat", "exists"},
    "scipy": {"loadmat", "mmread", "load_npz"},
    "joblib": {"load"},
    "safetensors": {"load_file", "safe_open"},
    "PIL": {"open"},
    "imageio": {"imread", "imopen"},
    "cv2": {"imread"},
    "h5py": {"File"},
    "pyarrow": {"read_table", "read_csv", "read_feather", "memory_map"},
    "io": {"open", "open_code", "FileIO"},
    "codecs": {"open"},
    "datetime": {"now", "today", "utcnow"},
    **dict.fromkeys(("importlib", "random", "secrets", "time", "urllib", "http", "socket")),
    **dict.fromkeys(("linecache", "fileinput", "glob", "sqlite3", "shelve", "subprocess")),
    **dict.fromkeys(("gzip", "bz2", "lzma", "zipfile", "tarfile", "pkgutil", "configparser")),
    **dict.fromkeys(("requests", "httpx", "uuid", "gc")),
}
_CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT"}
_BY_NAME = {"MAKE_CELL", "LOAD_CLOSURE"}  # prepare variables, in the order of the alphabet


def digest_of_code(code: CodeType) -> str:
    """Equal for code that does the same with its constants, whatever their values."""
    found, cells = hashlib.sha256(), {name: i for i, name in enumerate(cells_in(code))}
    for part in _nested(code):
        parameters = _parameters(part)
        places = {name: i for i, name in enumerate(parameters)}
        for instruction in dis.get_instructions(part):
            word = f"{instruction.opname} {_argument(instruction, places, cells)};"
            found.update(word.encode())
        found.update(part.co_exceptiontable)
        shared = [(i, cells.get(n)) for i, n in enumerate(parameters) if n in part.co_cellvars]
        kinds = part.co_argcount, part.co_kwonlyargcount, part.co_flags
        found.update(str((*kinds, *shared)).encode())
    return found.hexdigest()[:12]


@lru_cache(maxsize=4096)
def cells_in(code: CodeType) -> tuple[str, ...]:
    """The variables that it shares with functions around or inside it, as they are first used."""
    return tuple(
        dict.fromkeys(
            instruction.argval
            for part in _nested(code)
            for instruction in dis.get_instructions(part)
            if instruction.opcode in dis.hasfree and instruction.opname not in _BY_NAME
        )
    )


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
    found = {name for name in read & _ASKS if name not in known} | names & _LEADS
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


def _parameters(code: CodeType) -> tuple[str, ...]:
    more = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + more]


def _argument(instruction: dis.Instruction, places: dict[str, int], cells: dict[str, int]) -> Any:
    """What an instruction works on, unchanged if a local variable is renamed."""
    kind, value = instruction.opcode, instruction.argval
    if kind in dis.hasconst:
        return "constant"
    if instruction.opname in _BY_NAME:
        return "a variable"
    if kind in dis.haslocal or kind in dis.hasfree:
        known = cells if kind in dis.hasfree else places
        names = value if isinstance(value, tuple) else (value,)
        return [known.setdefault(name, len(known)) for name in names]
    return value if kind in dis.hasname or kind in dis.hasjrel else instruction.arg
