"""Which method is taken for a problem, and that it says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import bilevel
from bilevel.algorithms import paced_soba
from bilevel.algorithms.paced_saba import PacedSABA
from bilevel.algorithms.paced_soba import PacedSOBA
from bilevel.oracles import make
from bilevel.runs.choice import choice
from bilevel.solvers.measured import Measured


def sum_of(rows: int) -> bilevel.Problem:
    data = torch.linspace(-1, 1, rows).double()
    return bilevel.Problem(
        outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        x0=torch.ones(1).double(),
        y0=torch.zeros(1).double(),
        outer_data=data,
        inner_data=data,
    )


def logistic(rows: int, **settings: Any) -> bilevel.Problem:
    X = torch.randn(rows, 5, generator=torch.Generator().manual_seed(1)).double()
    labels = (X @ torch.tensor([2.0, -1, 0, 0, 0]).double() > 0.3).long()
    labels[::10] = 1 - labels[::10]
    half = rows // 2
    given = {"penalty": bilevel.PerFeature(scale=0.5), **settings}
    return bilevel.logistic_problem((X[:half], labels[:half]), (X[half:], labels[half:]), **given)


def three_classes(rows: int) -> bilevel.Problem:
    X = torch.randn(rows, 5, generator=torch.Generator().manual_seed(1)).double()
    part = X, X[:, :3].argmax(1)
    return bilevel.softmax_problem(part, part, penalty=bilevel.PerFeature())


@pytest.mark.parametrize(
    ("problem", "name", "because"),
    [
        (sum_of(10), "AIDQN", "only 10 rows"),
        (sum_of(500), "AnchoredAID", "500 rows"),
        (logistic(1000), "AnchoredAID", "500 rows"),
        (logistic(40_000), "PacedSABA", "20,000 rows"),
        (logistic(40_000, weights=bilevel.SigmoidWeights()), "AnchoredAID", "20,000 rows"),
        (three_classes(20_000), "AnchoredAID", "20,000 rows"),
        (three_classes(100_000), "PacedSOBA", "100,000 rows"),
    ],
    ids=("few", "sum", "model", "large", "weights of rows", "several classes", "huge"),
)
def test_recommend_names_what_minimize_takes(
    problem: bilevel.Problem, name: str, because: str
) -> None:
    text = bilevel.recommend(problem)
    assert text.startswith(f"{name}: ")
    assert because in text
    assert type(bilevel.chosen(problem)).__name__ == name


def test_a_result_says_what_was_taken_and_why() -> None:
    problem = sum_of(10)
    assert bilevel.minimize(problem, steps=1).chosen == bilevel.recommend(problem)
    given = bilevel.minimize(problem, bilevel.algorithms.SOBA(batch=None, outer_lr=0.1), steps=1)
    assert given.chosen == "SOBA: as you asked for it, with your settings"
    assert choice(problem, bilevel.algorithms.SABA()).why.startswith("saba without settings")


def test_paced_stretches_only_go_down_and_end_where_the_exact_steps_do() -> None:
    problem = logistic(6000)
    paced = bilevel.minimize(problem, PacedSABA(), steps=40, tol=1e-7)
    exact = bilevel.minimize(problem, bilevel.algorithms.AIDQN(), steps=100, tol=1e-7)
    assert paced.status is bilevel.Status.CONVERGED
    assert paced.history[-1].outer_value == pytest.approx(exact.history[-1].outer_value, abs=1e-6)
    values = [bilevel.minimize(problem, PacedSABA(), steps=k).state.measured for k in (2, 3, 4)]
    fallen = [m["value"] for m in values if "failures" in m]
    assert fallen == sorted(fallen, reverse=True)


def test_paced_stretches_go_on_to_the_bit_where_they_were_interrupted() -> None:
    problem = logistic(3000)
    whole = bilevel.minimize(problem, PacedSABA(), steps=5, seed=3)
    part = bilevel.minimize(problem, PacedSABA(), steps=2, seed=3)
    found = bilevel.minimize(problem, PacedSABA(), steps=5, seed=3, after=part.past)
    assert torch.equal(found.x, whole.x)
    assert found.counts == whole.counts


def test_paced_soba_only_goes_down_and_ends_where_the_exact_steps_do() -> None:
    problem = three_classes(6000)
    paced = bilevel.minimize(problem, PacedSOBA(), steps=60, tol=1e-6)
    exact = bilevel.minimize(problem, bilevel.algorithms.AIDQN(), steps=100, tol=1e-6)
    assert paced.status is bilevel.Status.CONVERGED
    assert paced.history[-1].outer_value == pytest.approx(exact.history[-1].outer_value, abs=1e-5)
    assert torch.equal(bilevel.minimize(problem, PacedSOBA(), steps=1).x, problem.x0)
    oracle = make(problem)
    values = [
        float(oracle.outer(x, bilevel.solve_inner(problem, x).y).value())
        for x in (bilevel.minimize(problem, PacedSOBA(), steps=k).x for k in (1, 2, 3, 4))
    ]
    assert values == sorted(values, reverse=True)


def test_paced_soba_resumes_to_the_bit() -> None:
    problem = three_classes(6000)
    whole = bilevel.minimize(problem, PacedSOBA(), steps=5)
    half = bilevel.minimize(problem, PacedSOBA(), steps=2)
    again = bilevel.minimize(problem, PacedSOBA(), steps=5, after=half.past)
    assert torch.equal(again.x, whole.x)
    assert torch.equal(again.state.y, whole.state.y)


def test_where_no_step_of_paced_soba_is_short_enough_accurate_steps_begin_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paced_soba, "_RATE", Measured(1e-12))
    problem = three_classes(6000)
    result = bilevel.minimize(problem, PacedSOBA(), steps=3)
    assert "share" in result.state.measured
    plain = bilevel.minimize(problem, bilevel.algorithms.AnchoredAID(), steps=3)
    assert torch.equal(result.x, plain.x)


def test_where_phi_has_risen_x_goes_back_and_y_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = three_classes(6000)
    first = bilevel.minimize(problem, PacedSOBA(), steps=1)
    # L and ‖∇y g‖ at both ends of the first chapter, and of the second, in which L rises.
    seen = iter([(1.0, 5.0), (1.0, 4.0), (1.0, 4.0), (2.0, 3.0)])
    monkeypatch.setattr(paced_soba, "_measured", lambda *_: paced_soba._Measured(*next(seen)))
    second = bilevel.minimize(problem, PacedSOBA(), steps=2)
    assert second.state.measured["failures"] == 1
    assert torch.equal(second.x, problem.x0)
    assert not torch.equal(second.state.y, first.state.y)
