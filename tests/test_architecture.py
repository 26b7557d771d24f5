"""The shape of the code: a few promises that every file keeps.

Which room may import which stands in `.importlinter`, and `make check` sees to it.

Everything is read with ast; nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_SOURCE = Path(__file__).parents[1] / "src" / "bilevel"
_FILES = {
    ".".join(("bilevel", *path.relative_to(_SOURCE).with_suffix("").parts)): path
    for path in sorted(_SOURCE.rglob("*.py"))
}
_MODULES = {
    name.removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
    for name, path in _FILES.items()
}
# The library's own names stand in its stub: its __init__ imports them when they are first used.
_OFFERS = {**_MODULES, "bilevel": ast.parse((_SOURCE / "__init__.pyi").read_text("utf-8"))}

# What the files of algorithms/ are made with; every other file there is an algorithm.
_FRAME = {"double_loop", "registry", "state"}


def part(module: str) -> str:
    """The file or folder of the library that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def imports(module: str) -> Iterator[str]:
    """The modules of the library that a module imports, also inside its functions."""
    for node in ast.walk(_MODULES[module]):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (home for name in names if (home := _home(name)))


def _home(name: str) -> str | None:
    """The module that a dotted name is, or is in; None outside the library."""
    while name and name not in _MODULES:
        name = name.rpartition(".")[0]
    return name or None


def test_few_files_are_loose() -> None:
    loose = {path.stem for path in _SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert loose == {"arguments", "discovery", "errors", "record", "schedules"}


def test_imports_make_no_circle() -> None:
    # A package's __init__ imports its files, which is no circle if they do not import it back.
    graph = {module: set(imports(module)) - {module, "bilevel"} for module in _MODULES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for other in sorted(graph[module]):
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())
    assert done == set(graph)


def test_an_algorithm_imports_no_other_algorithm() -> None:
    files = {m for m in _MODULES if m.startswith("bilevel.algorithms.")}
    frame = {f"bilevel.algorithms.{name}" for name in _FRAME}
    wrong = {m: used for m in files - frame if (used := (set(imports(m)) & files) - frame)}
    assert not wrong
    assert len(files - frame) >= 9


def test_one_file_alone_calls_automatic_differentiation() -> None:
    def differentiates(tree: ast.Module) -> bool:
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [ast.unparse(node)]
            names = [name for name in names if name != "torch.func.functional_call"]
            if any(
                name.split(".")[:2] in (["torch", "autograd"], ["torch", "func"]) for name in names
            ):
                return True
        return False

    assert [m for m, tree in _MODULES.items() if differentiates(tree)] == [
        "bilevel.oracles.autograd"
    ]


def test_algorithms_draw_no_random_numbers_and_know_no_data() -> None:
    """They ask the oracle, and take their rows from the streams of the step."""
    random = ("torch.rand", "torch.Generator", "torch.manual_seed", "np.random", "random.")
    for module, tree in _MODULES.items():
        if part(module) in ("algorithms", "hypergradients", "solvers"):
            called = {ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
            assert not [name for name in called if name.startswith(random)], module
            used = set(imports(module))
            assert "bilevel.problem.problem" not in used, module
            assert not [name for name in used if part(name) == "models"], module


def test_files_are_short() -> None:
    lines = {name: path.read_text("utf-8").count("\n") for name, path in _FILES.items()}
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_files_are_named_after_what_they_do() -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common"}
    assert [name for name in _FILES if vague & set(name.split("."))] == []


def test_every_file_says_what_it_is() -> None:
    assert [module for module, tree in _MODULES.items() if not ast.get_docstring(tree)] == []


def public_names() -> Iterator[tuple[str, str]]:
    """(module, name) of all that the modules' `__all__` offer."""
    for module, tree in _OFFERS.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                assert isinstance(node.value, ast.List), f"{module}.__all__ is no list"
                for element in node.value.elts:
                    if isinstance(element, ast.Constant):
                        yield module, str(element.value)
                    else:  # *_found: the public classes of the package's files
                        yield from discovered(module)


def discovered(package: str) -> Iterator[tuple[str, str]]:
    for module, tree in _MODULES.items():
        if module.startswith(f"{package}."):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield module, node.name


def docstring(module: str, name: str) -> str | None:
    """Of a name where it is defined: in this module, or where this module has it from."""
    if f"{module}.{name}" in _MODULES:
        return ast.get_docstring(_MODULES[f"{module}.{name}"])
    for node in _OFFERS[module].body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return "an alias, which can have none"
        if isinstance(node, ast.ImportFrom) and node.module in _MODULES:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return docstring(node.module, alias.name)
    raise AssertionError(f"{module} offers {name!r}, but does not define it")


def test_every_public_name_has_a_docstring() -> None:
    names = sorted(set(public_names()))
    assert len(names) > 50
    assert [f"{m}.{name}" for m, name in names if not docstring(m, name)] == []
