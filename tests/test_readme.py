"""What the README lists is what there is."""

from pathlib import Path

import pytest

import bilevel

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", bilevel.algorithms.registry().values(), ids=lambda e: e.name)
def test_readme_has_the_row_of_each_algorithm(entry):
    row = (
        f"| `{entry.name}` | `{entry.algorithm.__name__}` | {entry.summary} | {entry.paper} "
        f"| {entry.cost} |"
    )
    assert row in README


def test_readme_has_no_row_of_an_algorithm_that_is_gone():
    rows = [line for line in README.splitlines() if line.startswith("| `")]
    assert len(rows) == len(bilevel.algorithms.registry())


def test_readme_names_every_solver():
    for package in (bilevel.inner, bilevel.linear):
        for name in package._solvers:
            assert f"`{name}`" in README or f".{name}`" in README
