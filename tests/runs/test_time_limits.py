"""A time limit is kept inside a step, and what it breaks off is as if it had never begun.

The clock of these tests shows one second more each time that it is looked at.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

import bilevel
from bilevel.algorithms import HOAG, SABA, AIDBiO, AnchoredAID, ITDBiO, StocBiO
from bilevel.algorithms.contract import Algorithm, Report, State
from bilevel.oracles import make
from bilevel.oracles.views import View
from bilevel.problem.peers import Peers
from bilevel.runs.verify import curves_down

from ..oracles.distributed.test_distributed_oracle import together
from ..truth.quadratics import noisy_sum, quadratic
from .checkpoints.kept_runs import GOOD, assert_same, kept


def ticking(step: float = 1.0) -> Callable[[], float]:
    ticks = itertools.count(step=step)
    return lambda: float(next(ticks))


def small_network() -> bilevel.Problem:
    """A convolutional network of some 800 parameters, without a ridge: g is not convex."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(20, 1, 8, 8, generator=generator)
    labels = torch.randint(10, (20,), generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            *(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 38)),
        )
    y0 = {name: weights.detach() for name, weights in net.named_parameters()}

    def losses(y: Any) -> torch.Tensor:
        out = functional_call(net, y, (images,))
        return nn.functional.cross_entropy(out, labels, reduction="none")

    return bilevel.Problem(
        outer=lambda x, y: losses(y).mean(),
        inner=lambda x, y: (x.sigmoid() * losses(y)).mean(),
        x0=torch.zeros(20),
        y0=y0,
    )


@pytest.mark.parametrize("seconds", [1e-9, 40])
def test_a_slow_first_step_is_broken_off_between_two_calls(seconds: float) -> None:
    clock = ticking()
    result = bilevel.minimize(small_network(), AIDBiO(), steps=2, seconds=seconds, clock=clock)
    # The start, the look that was too late, the end; and a tenth to find out why.
    assert clock() <= 1.1 * seconds + 6
    assert (result.status, result.state.step, result.history) == ("time_limit", 0, [])
    assert torch.equal(result.x, torch.zeros(20))
    assert result.counts == bilevel.Counts()
    assert result.message.startswith(
        "The time was up after 0 steps; the hypergradient's norm is not known yet. "
        "Step 1 was broken off: it takes longer than what was left of the time. Allow more seconds"
    )


def test_advice_on_long_steps_is_for_long_steps() -> None:
    problem, method = noisy_sum(20).problem(), StocBiO(batch=4)
    unbroken = bilevel.minimize(problem, method, steps=40, seconds=1e9, clock=ticking())
    enough = unbroken.history[-1].seconds + 2
    message = bilevel.minimize(problem, method, seconds=enough, clock=ticking()).message
    assert message.endswith("Step 41 was broken off.")


def test_gradient_steps_that_are_taken_in_one_go_are_broken_off() -> None:
    calls = 0

    def inner(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return ((y - x) ** 2).sum()

    problem = bilevel.Problem(lambda x, y: (y**2).sum(), inner, torch.ones(2), torch.zeros(2))
    method = AIDBiO(inner_steps=2000, inner_lr=0.1, cg_steps=2, outer_lr=0.1)
    result = bilevel.minimize(problem, method, steps=2, seconds=40, clock=ticking())
    assert result.status == "time_limit"
    assert result.state.step == 0
    assert calls < 60


METHODS: dict[str, Algorithm] = {
    "fixed numbers": GOOD,
    "no numbers": AIDBiO(),
    "hoag": HOAG(),
    "itd": ITDBiO(inner_steps=10, inner_lr=0.3, outer_lr=0.3),
    "batches": StocBiO(batch=4),
    "tables": SABA(),
    "looks": AnchoredAID(),
}


@pytest.mark.parametrize("name", METHODS)
def test_with_more_time_it_ends_as_if_it_had_never_been_broken_off(
    name: str, tmp_path: Path
) -> None:
    problem, algorithm = noisy_sum(20).problem(), METHODS[name]
    unbroken = bilevel.minimize(problem, algorithm, steps=6, seconds=1e9, clock=ticking())
    enough = unbroken.history[3].seconds + 2  # for four steps and the beginning of the fifth
    usual: dict[str, Any] = {"algorithm": algorithm, "clock": ticking()}
    first = kept(tmp_path, problem, seconds=enough, **usual)
    assert (first.status, "was broken off" in first.message) == ("time_limit", True)
    assert first.state.step == 4
    assert first.counts == first.history[-1].counts
    # Called again with the same limits, it has ended; with more time, it goes on.
    assert_same(kept(tmp_path, problem, seconds=enough, **usual), first)
    assert_same(kept(tmp_path, problem, **usual), unbroken)
    after = bilevel.minimize(problem, algorithm, steps=6, after=first.past)
    assert_same(after, unbroken)


def test_a_step_whose_last_call_ends_late_counts() -> None:
    """Nothing is thrown away that is done already."""
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return float(looks)

    whole = bilevel.minimize(noisy_sum(20).problem(), GOOD, steps=1, seconds=1e9, clock=clock)
    # The clock is tried once, then looked at before the step, before each call, and after it.
    inside = looks - 1
    exact = bilevel.minimize(
        noisy_sum(20).problem(), GOOD, steps=9, seconds=inside - 1.5, clock=ticking()
    )
    assert (whole.state.step, exact.state.step) == (1, 1)
    assert (exact.status, exact.seconds) == ("time_limit", inside - 1)
    assert "broken off" not in exact.message


def test_a_look_without_time_is_doubtful_and_is_made_up_for(tmp_path: Path) -> None:
    problem, tol, now, pace = quadratic(4.0).problem(), 1e-4, 0.0, 1e-3

    def clock() -> float:
        nonlocal now
        now += pace
        return now

    def hurry(progress: bilevel.Progress) -> None:
        nonlocal pace
        pace = 1000.0 if progress.record.hypergradient_norm <= tol else 1e-3

    unbroken = bilevel.minimize(problem, GOOD, steps=500, tol=tol)
    usual: dict[str, Any] = {"steps": 500, "tol": tol, "clock": clock, "callbacks": [hurry]}
    first = kept(tmp_path, problem, seconds=100, **usual)
    assert (unbroken.status, first.status) == ("converged", "doubtful")
    assert "There was no time left to confirm it: allow more seconds." in first.message
    assert_same(kept(tmp_path, problem, seconds=100, **usual), first)
    assert_same(kept(tmp_path, problem, **usual), unbroken)


class Stubborn(Algorithm):
    """A method that takes every error for a failed solve, and tries again."""

    def init(self, oracle: Any, x0: torch.Tensor, y0: torch.Tensor) -> State:
        return State(0, {"x": x0, "y": y0})

    def step(self, view: View, state: State) -> tuple[State, Report]:
        while True:
            try:
                view.whole.inner(state.x, state.y).gradient()
            except Exception:
                continue

    def price(self, k: int) -> Any:
        raise NotImplementedError


def test_a_method_cannot_catch_it() -> None:
    result = bilevel.minimize(quadratic(4.0).problem(), Stubborn(), seconds=20, clock=ticking())
    assert (result.status, result.state.step) == ("time_limit", 0)


def test_all_processes_break_off_at_the_same_call() -> None:
    problem = noisy_sum(rows=13).problem()
    alone = bilevel.minimize(problem, GOOD, steps=3)

    def run(peers: Peers) -> torch.Tensor:
        held, clock = bilevel.shard(problem, peers), ticking(1.0 + peers.rank)
        first = bilevel.minimize(held, GOOD, steps=3, seconds=100, clock=clock)
        assert "was broken off" in first.message
        assert len(first.history) == first.state.step < 3
        return bilevel.minimize(held, GOOD, steps=3, after=first.past).x

    for x in together(2, run):
        torch.testing.assert_close(x, alone.x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("clock", "message"),
    [
        (lambda unit: 0.0, "without arguments"),
        (lambda: "noon", "as a number, got 'noon'"),
        (lambda: math.nan, "as a number, got nan"),  # no limit would ever be reached
    ],
)
def test_a_clock_that_tells_no_seconds_is_refused_before_any_work(
    clock: Callable[..., Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        bilevel.minimize(quadratic().problem(), AIDBiO(), clock=clock)


def test_a_clock_that_is_set_back_gives_no_time_back() -> None:
    ticks = itertools.count(step=-1.0)
    result = bilevel.minimize(noisy_sum(20).problem(), GOOD, steps=3, clock=lambda: next(ticks))
    assert [record.seconds for record in result.history] == [0.0, 0.0, 0.0]


def test_a_first_step_that_is_broken_off_on_a_network_says_that_g_is_not_convex() -> None:
    for seconds in (120, 80):  # a tenth of the time is left for that look
        result = bilevel.minimize(small_network(), AIDBiO(), seconds=seconds, clock=ticking())
        assert result.state.step == 0
        assert "not strongly convex in y" in result.message
        assert "ITDBiO(inner=bilevel.inner.Steps(" in result.message
        assert "bound its solves" not in result.message


def test_a_convex_inner_loss_is_not_said_to_curve_down() -> None:
    for problem, down in ((quadratic().problem(), False), (small_network(), True)):
        assert curves_down(make(problem), problem.x0, problem.y0) == down
