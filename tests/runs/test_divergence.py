"""A run that meets a value that is not finite ends as diverged, and keeps what it had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import SABA, AIDBiO, StocBiO
from bilevel.algorithms.contract import Algorithm, Report, State, Write
from bilevel.oracles import Oracle, View
from bilevel.oracles.prices import Cost

from ..truth.small_problems import softmax

_REGISTRY = bilevel.algorithms.registry()


def explosive(steps_until: int) -> bilevel.Problem:
    """A problem whose outer gradient is infinite once f has been differentiated so often."""
    calls = 0

    def outer(x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        nonlocal calls
        calls += y.requires_grad
        # One call is the trial when the problem is made.
        return (y**2).sum() / (0.0 if y.requires_grad and calls > steps_until + 1 else 1.0)

    def inner(x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        return ((y - x - batch.data) ** 2).mean()

    start, rows = torch.ones(2, dtype=torch.float64), torch.ones(20, 2, dtype=torch.float64)
    return bilevel.Problem(outer, inner, start, 0 * start, rows, rows)


def assert_diverged(result: bilevel.Result, step: int) -> None:
    assert result.status == "diverged"
    assert f"Step {step + 1} gave values that are not finite" in result.message
    assert "x and y are the best point that it saw" in result.message
    assert "Try a smaller inner_lr" in result.message
    assert len(result.history) == result.state.step == step
    assert torch.isfinite(result.x).all()
    assert torch.isfinite(result.y).all()


_TRIED = ("aid-qn", "anchored-aid")


@pytest.mark.parametrize("name", _TRIED)
@pytest.mark.parametrize("until", [2, 4, 8])
def test_where_steps_are_tried_x_stays_where_the_losses_are_finite(name: str, until: int) -> None:
    result = bilevel.minimize(explosive(until), _REGISTRY[name].make(), steps=100)
    assert result.status in ("diverged", "stalled")
    assert float((result.x + 1).square().sum()) <= 8.0  # Φ, which was 8 at the start


@pytest.mark.parametrize("name", [name for name in _REGISTRY if name not in _TRIED])
def test_the_last_finite_x_and_y_are_kept(name: str) -> None:
    algorithm = _REGISTRY[name].make()
    # Some differentiate f more than once a step, or on every row at first.
    result = bilevel.minimize(explosive(60), algorithm, steps=100)
    step = result.state.step
    assert 0 < step <= 60
    truth = bilevel.minimize(explosive(10**6), algorithm, steps=step)
    assert_diverged(result, step)
    assert torch.equal(result.state.x, truth.x)
    assert torch.equal(result.state.y, truth.y)
    assert float((result.x + 1).square().sum()) <= 8.0  # Φ, which was 8 at the start
    assert [record.outer_value for record in result.history] == [
        record.outer_value for record in truth.history
    ]


@pytest.mark.parametrize("name", _REGISTRY)
def test_a_run_that_diverges_at_once_keeps_the_start(name: str) -> None:
    result = bilevel.minimize(explosive(0), _REGISTRY[name].make(), steps=10)
    assert_diverged(result, step=0)
    assert result.x.tolist() == [1.0, 1.0]
    assert result.y.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "name", [name for name, entry in _REGISTRY.items() if "inner_lr" in entry.demo]
)
def test_inner_steps_that_are_too_long_end_in_divergence_not_in_an_error(name: str) -> None:
    algorithm = _REGISTRY[name].make(inner_lr=1e200)
    result = bilevel.minimize(softmax(), algorithm, steps=20)
    assert_diverged(result, step=result.state.step)


@pytest.mark.parametrize("preconditioner", [bilevel.linear.jacobi, bilevel.linear.from_oracle])
@pytest.mark.parametrize(
    "algorithm",
    [
        lambda **arguments: bilevel.algorithms.AIDBiO(
            inner_steps=10, inner_lr=1e200, cg_steps=10, **arguments
        ),
        lambda **arguments: bilevel.algorithms.AIDCG(inner_lr=1e308, **arguments),
        lambda **arguments: bilevel.algorithms.HOAG(outer_lr=1e300, **arguments),
    ],
    ids=["aid-bio", "aid-cg", "hoag"],
)
def test_a_preconditioner_does_not_turn_divergence_into_an_error(
    algorithm: Any, preconditioner: Any
) -> None:
    result = bilevel.minimize(softmax(), algorithm(preconditioner=preconditioner), steps=20)
    assert_diverged(result, step=result.state.step)


def test_an_outer_value_that_is_not_finite_is_divergence_though_x_and_y_are_finite() -> None:
    """log y has a finite slope where it has no value."""
    problem = bilevel.Problem(
        outer=lambda x, y: y.log().sum(),
        inner=lambda x, y: ((y - x) ** 2).sum(),
        x0=torch.ones(1, dtype=torch.float64),
        y0=torch.ones(1, dtype=torch.float64),
    )
    algorithm = bilevel.algorithms.AIDBiO(inner_steps=1, inner_lr=0.5, outer_lr=0.6)
    # y is x after each inner step, x falls by 0.6/y: 1, 0.4, −1.1, and y one step behind.
    result = bilevel.minimize(problem, algorithm, steps=10)
    assert_diverged(result, step=2)
    assert result.state.y.tolist() == [0.4]


def test_a_diverged_run_is_not_reported_as_converged_or_stopped() -> None:
    seen = []
    algorithm = bilevel.algorithms.AIDBiO(accuracy=0.05)  # a double loop: steps are not tried
    result = bilevel.minimize(explosive(2), algorithm, steps=10, tol=1e-12, callbacks=[seen.append])
    assert_diverged(result, step=2)
    assert [progress.record.step for progress in seen] == [1, 2]


def test_a_diverged_run_can_go_on_from_its_last_finite_state_with_a_smaller_step() -> None:
    problem = softmax()
    diverged = bilevel.minimize(problem, bilevel.algorithms.AIDCG(inner_lr=1e308), steps=3)
    assert_diverged(diverged, step=0)
    mended = bilevel.minimize(
        problem, bilevel.algorithms.AIDCG(inner_lr=0.1), steps=3, state=diverged.state
    )
    assert mended.status == "step_limit"
    assert torch.isfinite(mended.x).all()


class Remembers(Algorithm):
    """Walks x on, and writes the step's number into a table; step `bad` is not finite."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        return State(0, {"x": x0, "y": y0}, tables={"seen": torch.zeros(9).double()})

    def step(self, view: View, state: State) -> tuple[State, Report]:
        k = state.step + 1
        moved = state.x * (torch.inf if k == self.bad else 0.5)
        write = Write("seen", torch.tensor([k]), torch.tensor([float(k)]).double())
        after = replace(state, step=k, points={**state.points, "x": moved})
        return after, Report(state.x, 1.0, writes=(write,))

    def price(self, k: int) -> Cost:
        return Cost()


def test_tables_are_written_when_a_step_is_accepted_and_not_before() -> None:
    problem = softmax()
    whole = bilevel.minimize(problem, Remembers(bad=0), steps=5)
    assert whole.state.tables["seen"].tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 0]
    diverged = bilevel.minimize(problem, Remembers(bad=4), steps=5)
    assert diverged.status == "diverged"
    assert diverged.state.tables["seen"].tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 0]


def test_an_objective_without_a_minimum_is_told() -> None:
    start = torch.ones(2, dtype=torch.float64)
    problem = bilevel.Problem(
        outer=lambda x, y: (x * y).sum() - 5 * (x**2).sum(),
        inner=lambda x, y: ((y - x) ** 2).sum(),
        x0=start,
        y0=0 * start,
    )
    result = bilevel.minimize(problem, steps=40)
    assert result.status == "step_limit"
    assert "may have no minimum" in result.message
    # A norm that grows on the way down and falls again is no such fall.
    well = bilevel.Problem(
        outer=lambda x, y: -(-((y - 30) ** 2) / 8).exp().sum(),
        inner=lambda x, y: ((y - x) ** 2).sum(),
        x0=15 * start,
        y0=15 * start,
    )
    found = bilevel.minimize(well, steps=40, tol=1e-9)
    assert "may have no minimum" not in found.message


@pytest.mark.parametrize("method", [AIDBiO(), StocBiO(), SABA()], ids=lambda m: type(m).__name__)
def test_an_inner_loss_without_a_minimum_is_told(method: Algorithm) -> None:
    start = torch.ones(2, dtype=torch.float64)
    problem = bilevel.Problem(
        outer=lambda x, y: (y**2).sum(),
        inner=lambda x, y: -((x - y) ** 2).sum(),
        x0=start,
        y0=0 * start,
    )
    result = bilevel.minimize(problem, method, steps=5)
    assert result.status == "diverged"
    assert "the inner loss may have no minimum in y" in result.message


def test_growth_in_a_few_steps_has_a_word_at_least() -> None:
    """Too few to call it divergence, whose usual norms are those of ten steps."""
    method = AIDBiO(inner_steps=5, inner_lr=0.25, cg_steps=2, outer_lr=100.0)
    problem = bilevel.Problem(
        lambda x, y: (y - 1).square().sum(),
        lambda x, y: (y - x).square().sum(),
        torch.zeros(2).double(),
        torch.zeros(2).double(),
    )
    result = bilevel.minimize(problem, method, steps=4)
    assert result.status == "step_limit"
    assert "The norm was 2.83 in the first step, and the outer loss has risen" in result.message
    calm = bilevel.minimize(problem, replace(method, outer_lr=0.1), steps=4)
    assert "has risen" not in calm.message
