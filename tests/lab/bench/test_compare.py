"""`bilevel.compare`: the same start and budget for all, judged by accurate solves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import bilevel
from bilevel.algorithms import AIDBiO
from bilevel.errors import UserError


def ridge(shift: float = 0.0) -> bilevel.Problem:
    """inner: ½‖y − x‖², outer: ½‖y − 1 − shift‖²: Φ(x) = ½‖x − 1 − shift‖²."""
    return bilevel.Problem(
        outer=lambda x, y: ((y - 1 - shift) ** 2).sum() / 2,
        inner=lambda x, y: ((y - x) ** 2).sum() / 2,
        x0=torch.zeros(3, dtype=torch.float64),
        y0=torch.zeros(3, dtype=torch.float64),
    )


def aid(lr: float) -> AIDBiO:
    return AIDBiO(inner_steps=1, inner_lr=0.5, cg_steps=2, outer_lr=lr)


def test_values_are_those_of_accurate_solves_from_one_start() -> None:
    found = bilevel.compare(ridge(), {"slow": aid(0.1), "fast": aid(0.5)}, steps=8, seeds=2)
    for label in ("slow", "fast"):
        for curve in found.curves[label]:
            assert curve.column("step")[0] == 0
            assert curve.column("step")[-1] == 8
            assert curve.column("value")[0] == pytest.approx(1.5, rel=1e-12)
            assert curve.column("squared_gradient")[0] == pytest.approx(3, rel=1e-9)
            # One inner step leaves y behind y*(x): Φ(x) is not f at that y.
            assert curve.last("value") < curve.last("outer_value")
            assert curve.label == label
    assert found.ranked == "value"
    assert found.curves["fast"][0].last("value") < found.curves["slow"][0].last("value")
    assert "s to 10 %" in str(found)
    assert "8 steps" in str(found)


def test_a_report_is_one_page_with_table_and_curves(tmp_path: Path) -> None:
    metrics = {"farthest": lambda x, y: float((x - 1).abs().max())}
    found = bilevel.compare(
        ridge(), [aid(0.1), aid(0.5), "hoag"], steps=4, seeds=1, metrics=metrics
    )
    assert list(found.curves) == ["aid-bio", "aid-bio #2", "hoag"]
    page = found.report(tmp_path / "new").read_text()
    assert "farthest" in page
    assert "outer_lr=0.5" in page
    assert "Content-Security-Policy" in page  # loads nothing from anywhere
    lines = (tmp_path / "new/curves.jsonl").read_text().splitlines()
    assert {json.loads(line)["method"] for line in lines} == set(found.curves)
    assert "hoag" in (tmp_path / "new/table.md").read_text()


def test_a_folder_is_gone_on_with_and_takes_more_methods(tmp_path: Path) -> None:
    first = bilevel.compare(ridge(), {"a/b": aid(0.1)}, steps=4, seeds=1, folder=tmp_path / "kept")
    kept = {file: file.read_bytes() for file in tmp_path.rglob("metrics.jsonl")}
    both = {"a/b": aid(0.1), "..": aid(0.2)}
    again = bilevel.compare(ridge(), both, steps=4, seeds=1, folder=tmp_path / "kept")
    assert len(kept) == 1
    assert all(file.read_bytes() == content for file, content in kept.items())
    assert again.curves["a/b"][0].last("value") == first.curves["a/b"][0].last("value")
    assert list(again.curves) == ["a/b", ".."]


@pytest.mark.parametrize(
    ("problem", "method", "said"),
    [
        (lambda: ridge(1.0), lambda: aid(0.1), "another problem"),
        (ridge, lambda: aid(0.2), r"another method 'a' \(.*outer_lr was 0.1, is 0.2"),
    ],
)
def test_runs_of_something_else_are_refused(problem, method, said: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    bilevel.compare(ridge(), {"a": aid(0.1)}, steps=2, seeds=1, folder=kept)
    with pytest.raises(UserError, match=said):
        bilevel.compare(problem(), {"a": method()}, steps=2, seeds=1, folder=kept)


def test_a_loss_without_an_inner_solution_is_judged_at_the_runs_own_y() -> None:
    problem = bilevel.Problem(
        outer=lambda x, y: ((y - 1) ** 2).sum(),
        inner=lambda x, y: (x * y).sum() - (y**2).sum(),
        x0=torch.ones(2),
        y0=torch.zeros(2),
    )
    found = bilevel.compare(problem, [aid(0.1)], steps=2, seeds=1)
    assert found.ranked == "outer_value"
    assert "value" not in found.curves["aid-bio"][0].columns


@pytest.mark.parametrize(
    ("methods", "said"), [([], "methods is empty"), (["sabba"], "sabba"), ([AIDBiO], "a method")]
)
def test_wrong_methods_are_told(methods: list[object], said: str) -> None:
    with pytest.raises((UserError, TypeError), match=said):
        bilevel.compare(ridge(), methods, steps=1)
