"""The shape of the code: a few promises that every file keeps.

Which room may import which stands in `.importlinter`, and `make check` sees to it.

Everything is read with ast; nothing is imported.
"""

from __future__ import annotations

import ast
import re
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
_FRAME = {
    path.stem
    for path in (_SOURCE / "algorithms").glob("*.py")
    if not re.search("^@register", path.read_text("utf-8"), re.MULTILINE)
}


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

    found = [m for m, tree in _MODULES.items() if differentiates(tree)]
    assert found == ["bilevel.oracles.derivatives"]


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


def classes(module: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in _MODULES[module].body if isinstance(node, ast.ClassDef)}


def methods(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_no_file_calls_backward_on_a_tensor() -> None:
    """`torch.autograd.grad` leaves no trace in the `.grad` of the caller's tensors."""
    wrong = [
        module
        for module, tree in _MODULES.items()
        for call in calls(tree)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
    ]
    assert wrong == []


def test_one_line_adds_to_the_counts() -> None:
    """In `Tally.pay`; a second place that counts would sooner or later count twice."""
    adds = [
        (module, node.lineno)
        for module, tree in _MODULES.items()
        if part(module) in ("oracles", "runs", "algorithms", "models")
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign)
        and {"numbers", "_numbers", "tally", "_tally", "counts"} & set(_names(node.target))
    ]
    pay = next(
        item
        for item in classes("bilevel.oracles.prices")["Tally"].body
        if isinstance(item, ast.FunctionDef) and item.name == "pay"
    )
    places = range(pay.lineno, (pay.end_lineno or 0) + 1)
    assert len(adds) == 2  # the calls and the samples
    assert all(module == "bilevel.oracles.prices" and line in places for module, line in adds)


def test_who_pays_is_in_one_file() -> None:
    """Oracles are counted from outside: none of them knows a price of its own calls."""
    payers = {
        module
        for module, tree in _MODULES.items()
        for call in calls(tree)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "pay"
    }
    assert payers == {"bilevel.oracles.counting"}


def test_only_algorithms_know_how_they_loop() -> None:
    """Whoever runs, saves or judges an algorithm knows its contract, not its frame."""
    knows = {
        module
        for module, tree in _MODULES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in ("DoubleLoop", "SingleLoop"))
        or (isinstance(node, ast.Attribute) and node.attr in ("DoubleLoop", "SingleLoop"))
        or (isinstance(node, ast.alias) and node.name in ("DoubleLoop", "SingleLoop"))
    }
    assert {part(module) for module in knows} == {"algorithms"}


def test_no_file_asks_which_form_a_problem_has() -> None:
    """What a form knows, its model offers: a new one needs no case anywhere."""
    asked = [
        (module, ast.unparse(call))
        for module, tree in _MODULES.items()
        for call in calls(tree)
        if ast.unparse(call.func) == "isinstance"
        and any(name.endswith("Form") for name in _names(call.args[1]))
    ]
    assert asked == []


def _names(node: ast.expr) -> list[str]:
    """Of the classes in the second argument of isinstance."""
    parts = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return parts + [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)]


def test_a_wrapper_restates_little_of_what_it_wraps() -> None:
    """So that a new question to an oracle is one method here, and not one in each wrapper."""
    asked = methods(classes("bilevel.oracles.points")["Oracle"])
    points = {"outer", "inner", "linearize", "again"}
    assert asked == points | {"pull", "start", "accelerate", "streams", "linear_bytes", "ridge"}
    most = {
        ("bilevel.oracles.counting", "CountingOracle"): 6,
        ("bilevel.oracles.views", "SharedBatch"): 2,
        ("bilevel.oracles.distributed", "DistributedOracle"): 8,
    }
    for (module, name), count in most.items():
        assert len(methods(classes(module)[name]) & asked) <= count, name
