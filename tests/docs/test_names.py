"""Every public class and function has a runnable example, or a reason for having none."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any

import pytest

import bilevel

from .test_pages import ROOT, maker

# Why an example would say nothing, or more than it helps.
WITHOUT = {
    "bilevel.algorithms.register": "would put a method on every list; the guide has a whole file",
    "bilevel.algorithms.Report": "made by `step`, in the example of Algorithm",
    "bilevel.algorithms.Solve": "a part of Report",
    "bilevel.algorithms.Write": "a part of Report",
    "bilevel.hypergradients.Differentiation": "an interface; AID and ITD have examples",
    "bilevel.hypergradients.Stand": "made in the example of Estimate",
    "bilevel.hypergradients.Start": "an interface; GivenStart and LearnedStart have examples",
    "bilevel.inner.InnerStatus": "four words",
    "bilevel.linear.LinearStatus": "five words",
    "bilevel.oracles.Inner": "asked for its values in the example of Oracle",
    "bilevel.oracles.Linear": "asked for its products in the example of Oracle",
    "bilevel.oracles.Outer": "asked for its values in the example of Oracle",
    "bilevel.oracles.Plan": "an interface; `do` carries one out",
    "bilevel.oracles.Start": "what LearnedStart asks an oracle for",
    "bilevel.peers.LostPeersError": "needs a process that dies",
    "bilevel.peers.Peers": "an interface; Alone and Group have examples",
    "bilevel.theory.Kind": "three words, in the example of Constant",
    "bilevel.trackers.MLflow": "used as TensorBoard is, and takes seconds to load",
    "bilevel.updates.Back": "what the transpose of an update returns to ITD",
}


def _public() -> dict[str, Any]:
    """Every public class and function, by one of its names."""
    reference, found = maker("reference"), {}
    for name in bilevel.__all__:
        item = getattr(bilevel, name)
        if not isinstance(item, ModuleType):
            found[f"bilevel.{name}"] = item
            continue
        for each in reference.public(item):
            found[f"bilevel.{name}.{each}"] = getattr(item, each)
    known: dict[int, str] = {}
    for name, item in found.items():  # a few are in the library's own names and in a module
        known.setdefault(id(item), name)
    kinds = (inspect.isclass, inspect.isroutine)
    return {name: found[name] for name in known.values() if any(k(found[name]) for k in kinds)}


PUBLIC = _public()


def test_the_names_are_found() -> None:
    assert len(PUBLIC) > 200
    assert {"bilevel.minimize", "bilevel.algorithms.SABA", "bilevel.linear.jacobi"} <= PUBLIC.keys()


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - WITHOUT.keys()))
def test_every_public_class_and_function_has_an_example(name: str) -> None:
    example = PUBLIC[name].__doc__ or ""
    assert "\n    Example" in example, f"{name}: end its docstring with `Example:` and a doctest"
    assert ">>> " in example, name


def test_the_classes_that_contributors_are_shown_have_one_too() -> None:
    shown = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("```python\n")[1:]
    docs = [ast.get_docstring(each) or "" for block in shown for each in _classes(block)]
    assert len(docs) == 2
    assert all("\nExample:\n" in text and ">>> " in text for text in docs)


def _classes(block: str) -> list[ast.ClassDef]:
    found = ast.parse(block.split("```")[0]).body
    return [each for each in found if isinstance(each, ast.ClassDef)]


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_what_needs_no_example_exists_and_has_none(name: str) -> None:
    assert ">>> " not in (PUBLIC[name].__doc__ or ""), (
        f"{name} has an example: take it off the list"
    )
