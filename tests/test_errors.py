"""What messages quote is bounded, wherever it comes from."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import bilevel
from bilevel.errors import quoted

SOURCE = Path(bilevel.__file__).parent
_LONG = "a" * 10**6
_OF_PYTHON = {"AttributeError", "KeyError", "ModuleNotFoundError"}  # whose words are of programs


def _unbounded(tree: ast.AST) -> list[int]:
    """Where an error that is raised writes a value with !r, whatever its length."""
    return [
        part.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and not (isinstance(node.exc, ast.Call) and _name(node.exc) in _OF_PYTHON)
        for part in ast.walk(node)
        if isinstance(part, ast.FormattedValue)
        and part.conversion == ord("r")
        and not ast.unparse(part.value).strip("_")[:1].isupper()  # a constant of ours
        and ast.unparse(part.value) not in ("error", "role")
    ]


def _name(call: ast.Call) -> str:
    return getattr(call.func, "id", "")


def test_errors_quote_with_a_limit() -> None:
    """By `bilevel.errors.quoted`: a column name may have 50 MB."""
    files = SOURCE.rglob("*.py")
    found = {str(f.relative_to(SOURCE)): _unbounded(ast.parse(f.read_text())) for f in files}
    assert {file: lines for file, lines in found.items() if lines} == {}


def _problem(**changes: Any) -> bilevel.Problem:
    plain: dict[str, Any] = {
        "outer": lambda x, y: (y**2).sum(),
        "inner": lambda x, y: ((y - x) ** 2).sum(),
        "x0": torch.ones(1),
        "y0": torch.ones(1),
    }
    return bilevel.Problem(**{**plain, **changes})


MISTAKES: dict[str, Callable[[], Any]] = {
    "loss": lambda: _problem(outer=_LONG),
    "start": lambda: _problem(x0=_LONG),
    "key": lambda: _problem(x0={_LONG: "text"}),
    "batch": lambda: bilevel.algorithms.StocBiO(batch=_LONG),
    "rate": lambda: bilevel.algorithms.AIDBiO(outer_lr=_LONG),
    "method": lambda: bilevel.minimize(_problem(), _LONG),
    "callback": lambda: bilevel.minimize(_problem(), callbacks=[_LONG]),
    "metric": lambda: bilevel.minimize(_problem(), metrics={"a": _LONG}),
    "data set": lambda: bilevel.datasets.load(_LONG),
    "plan": lambda: bilevel.theory.plan_for(_problem(), _LONG, 0.1),
    "weights": lambda: bilevel.softmax_problem(
        (torch.ones(2, 1), torch.arange(2)), (torch.ones(2, 1), torch.arange(2)), weights=_LONG
    ),
    "numbers": lambda: bilevel.minimize(_problem(), tol=[0] * 10**6),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_a_million_characters_is_told_in_a_few(name: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        MISTAKES[name]()
    assert 10 < len(str(raised.value)) < 1000


def test_a_value_that_cannot_be_shown_is_named_by_its_class() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    assert quoted(Shy()) == "a Shy"
