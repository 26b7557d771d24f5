"""A run in a folder ends like one that nothing disturbed, whatever the word for its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import bilevel
from bilevel import updates
from bilevel.algorithms import AIDBiO, Algorithm, ITDBiO, StocBiO

from ...truth.quadratics import quadratic
from ...truth.small_problems import softmax
from .kept_runs import PowerFailureError, assert_same, fail_at, kept

EXACT: dict[str, Any] = {"inner_steps": 2, "inner_lr": 0.5, "cg_steps": 2}


def one() -> bilevel.Problem:
    return bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum() + 1,
        inner=lambda x, y: (y - 2 * x).square().sum(),
        x0=torch.tensor([5.0], dtype=torch.float64),
        y0=torch.tensor([0.0], dtype=torch.float64),
    )


def weighted() -> bilevel.Problem:
    return softmax(12, 3, 2, weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1))


NOISY = StocBiO(
    inner_steps=3, inner_lr=0.3, neumann_terms=5, neumann_lr=0.3, batch=2, outer_lr=1e-6
)


@dataclass(frozen=True)
class Case:
    """A run, and where to break it off."""

    status: str
    problem: Any
    algorithm: Algorithm
    tol: float | None
    steps: int
    cut: int

    def run(self, folder: Path | None, **changes: Any) -> bilevel.Result:
        given = {"algorithm": self.algorithm, "tol": self.tol, "steps": self.steps, **changes}
        return kept(folder, self.problem(), **given)  # type: ignore[arg-type]


CASES = {
    "converged": Case(
        "converged", one, AIDBiO(**EXACT, outer=updates.Adam(0.5)), 1e-1, 500, cut=10
    ),
    "doubtful by bias": Case("doubtful", softmax, ITDBiO(inner_steps=1), 1e-3, 30, cut=1),
    # Estimates on two rows are below the tolerance at steps 7 and 14, and wrong.
    "doubtful at the end": Case("doubtful", weighted, NOISY, 0.0315, 14, cut=10),
    "diverged by growth": Case("diverged", one, AIDBiO(**EXACT, outer_lr=0.6), None, 100, cut=20),
    "diverged to infinity": Case(
        "diverged",
        lambda: quadratic(4.0).problem(),
        AIDBiO(inner=bilevel.inner.NewtonCG(1e-6), cg_steps=5, outer_lr=1e100),
        None,
        50,
        cut=1,
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_a_run_that_was_broken_off_ends_with_the_same_word_note_and_point(
    case: Case, tmp_path: Path
) -> None:
    whole = case.run(None)
    assert whole.status == case.status
    with pytest.raises(PowerFailureError):
        case.run(tmp_path, callbacks=[fail_at(case.cut)])
    assert_same(case.run(tmp_path), whole)
    # And once it has ended, it is given at once.
    assert_same(case.run(tmp_path, callbacks=[pytest.fail]), whole)


@pytest.mark.parametrize("tol", [1e-3, 1e-9, None], ids=str)
def test_a_smaller_tolerance_goes_on_as_if_it_had_been_given_at_once(
    tol: float | None, tmp_path: Path
) -> None:
    case = CASES["converged"]
    first = case.run(tmp_path)
    usual: dict[str, Any] = {"tol": tol, "steps": len(first.history) + 40}
    assert_same(case.run(tmp_path, **usual), case.run(None, **usual))


def test_a_smaller_tolerance_at_the_last_step_gives_the_last_x(tmp_path: Path) -> None:
    """And not the one that the larger had been content with."""
    case = CASES["converged"]
    steps = len(case.run(tmp_path).history)
    again = case.run(tmp_path, tol=1e-9, steps=steps)
    assert again.status == "step_limit"
    assert torch.equal(again.x, again.state.x)
    assert_same(again, case.run(None, tol=1e-9, steps=steps))


def test_a_larger_tolerance_is_content_with_what_was_found(tmp_path: Path) -> None:
    case = CASES["converged"]
    first = case.run(tmp_path)
    again = case.run(tmp_path, tol=0.5, callbacks=[pytest.fail])
    assert again.status == "converged"
    assert torch.equal(again.x, first.x)


def test_a_doubt_that_only_the_limit_brought_is_gone_with_a_wider_one(tmp_path: Path) -> None:
    case = CASES["doubtful at the end"]
    assert case.run(tmp_path).status == "doubtful"
    longer = case.run(tmp_path, steps=20)
    assert_same(longer, case.run(None, steps=20))
    assert longer.state.step > case.steps


def test_a_look_that_ctrl_c_breaks_off_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["converged"]
    whole = case.run(None)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("bilevel.runs.run.look", interrupted)
        with pytest.raises(KeyboardInterrupt):
            case.run(tmp_path)
    assert_same(case.run(tmp_path), whole)


@pytest.mark.parametrize("every", [1, 3, 100])
def test_the_best_point_is_the_same_after_a_break_however_seldom_f_is_evaluated(
    every: int, tmp_path: Path
) -> None:
    def lr(k: int) -> float:
        return 0.05 if k < 10 else 0.9

    case = Case("diverged", one, AIDBiO(**EXACT, outer_lr=lr), None, 200, cut=12)
    case.run(tmp_path, evaluate_every=every, steps=8)  # which evaluates its last step
    found, whole = case.run(tmp_path, evaluate_every=every), case.run(None, evaluate_every=every)
    assert found.status == "diverged"
    assert_same(found, whole)
