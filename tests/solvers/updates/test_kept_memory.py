"""What inner solvers remember over outer steps: it lives on, is saved, and goes on to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from bilevel.inner import InnerSolution, InnerSolver, InnerStatus, Steps
from bilevel.updates import AdaGrad, Adam, Descent, Look, Momentum, Nesterov, TorchOptimizer, Update

import bilevel
from bilevel.algorithms import AIDBiO, ITDBiO, State, StocBiO
from bilevel.hypergradients import AccurateAID, Stand
from bilevel.oracles import View, make
from bilevel.schedules import decaying

from ...truth.quadratics import noisy_sum, quadratic

UPDATES: dict[str, Update] = {
    "momentum": Momentum(0.05),
    "nesterov": Nesterov(0.05),
    "adam": Adam(0.05),
    "adam with a schedule": Adam(decaying(0.1, 0.5)),
    "adagrad": AdaGrad(0.2),
    "descent with a schedule": Descent(decaying(0.3, 0.5)),
    "rmsprop": TorchOptimizer(lambda p: torch.optim.RMSprop(p, lr=0.02)),
}
AID_SETTINGS: dict[str, Any] = {"cg_steps": 4, "outer_lr": 0.1}


def steps_of(algorithm: bilevel.algorithms.Algorithm, count: int) -> list[State]:
    problem = noisy_sum(rows=20).problem()
    oracle = make(problem, 3)
    path = [algorithm.init(oracle, problem.x0, problem.y0)]
    for k in range(count):
        path.append(algorithm.step(View.of(oracle, k), path[-1])[0])
    return path


def by_hand(update: Update, algorithm: AIDBiO, outer: int, inner: int, keep: bool) -> Any:
    """y after each outer step, with the moments carried on or not."""
    problem = noisy_sum(rows=20).problem()
    oracle = make(problem, 3)
    xs = [state.x for state in steps_of(algorithm, outer)]
    y, found = problem.y0, []
    memory, t = update.init(y), 0
    for k in range(outer):
        if not keep:
            memory, t = update.init(y), 0
        for rows in oracle.streams(k).batches("inner", 4, inner):
            y, memory = update.apply(y, oracle.inner(xs[k], y, rows).gradient(), memory, Look(t))
            t += 1
        found.append(y)
    return found


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "anew"])
@pytest.mark.parametrize("name", UPDATES)
def test_moments_live_on_over_outer_steps_where_asked_and_begin_anew_where_not(name, keep):
    update = UPDATES[name]
    algorithm = AIDBiO(inner=Steps(update, 3, 4, keep=keep), **AID_SETTINGS)
    path = steps_of(algorithm, 4)
    right = by_hand(update, algorithm, 4, 3, keep)
    wrong = by_hand(update, algorithm, 4, 3, not keep)
    assert all(torch.equal(s.y, y) for s, y in zip(path[1:], right, strict=True))
    assert torch.equal(path[1].y, wrong[0])
    assert not torch.equal(path[2].y, wrong[1])
    assert ("y" in path[-1].memory) == keep
    assert path[-1].memory.get("y", {}).get("steps taken", 12) == 12


@pytest.mark.parametrize("kind", [AIDBiO, ITDBiO, StocBiO])
@pytest.mark.parametrize("name", ["momentum", "adam with a schedule"])
def test_a_run_cut_in_two_is_one_run_to_the_bit(kind, name, tmp_path):
    inner = Steps(UPDATES[name], 3, 4, keep=True)
    own = {"neumann_terms": 3, "batch": 4} if kind is StocBiO else {}
    algorithm = kind(inner=inner, outer=Adam(0.05), **own)
    problem = noisy_sum(rows=20).problem()
    unbroken = bilevel.minimize(problem, algorithm, steps=7, seed=3)
    for cut in (1, 4):
        file = tmp_path / f"cut at {cut}"
        bilevel.minimize(problem, algorithm, steps=cut, seed=3, checkpoint=file)
        resumed = bilevel.minimize(problem, algorithm, steps=7, seed=3, checkpoint=file)
        assert_same_state(resumed.state, unbroken.state)
        assert len(resumed.history) == 7
    assert unbroken.state.memory["y"]["m"].any()


def assert_same_state(one: State, other: State) -> None:
    assert one.step == other.step
    assert_same(one.points, other.points)
    assert_same(one.memory, other.memory)


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, Mapping):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


@dataclass(frozen=True)
class OwnAdam(InnerSolver):
    """A user's own solver, with moments that last."""

    steps: int = 3

    def solve(self, oracle, x, y, streams):
        return self.go_on(oracle, x, y, streams, {})

    def go_on(self, oracle, x, y, streams, memory):
        t, m, s = memory.get("t", 0), memory.get("m", 0 * y), memory.get("s", 0 * y)
        for rows in streams.batches("inner", 4, self.steps):
            g = oracle.inner(x, y, rows).gradient()
            t, m, s = t + 1, 0.9 * m + 0.1 * g, 0.99 * s + 0.01 * g * g
            y = y - 0.05 * (m / (1 - 0.9**t)) / ((s / (1 - 0.99**t)).sqrt() + 1e-8)
        kept = {"t": t, "m": m, "s": s}
        return InnerSolution(y, InnerStatus.STEP_LIMIT, self.steps, memory=kept)

    @property
    def samples(self):
        return True


@pytest.mark.parametrize("kind", ["aid-bio", "aid-cg", "aid-fp", "hoag", "stocbio"])
def test_a_users_own_solver_with_a_memory_goes_on_from_a_checkpoint_to_the_bit(kind, tmp_path):
    algorithm = bilevel.algorithms.registry()[kind].make(inner=OwnAdam())
    problem = noisy_sum(rows=20).problem()
    unbroken = bilevel.minimize(problem, algorithm, steps=8, seed=3)
    file = tmp_path / "run"
    bilevel.minimize(problem, algorithm, steps=5, seed=3, checkpoint=file)
    resumed = bilevel.minimize(problem, algorithm, steps=8, seed=3, checkpoint=file)
    assert_same_state(resumed.state, unbroken.state)
    assert resumed.state.memory["y"]["t"] == 8 * 3
    state = bilevel.minimize(problem, algorithm, steps=5, seed=3).state
    assert_same_state(
        bilevel.minimize(problem, algorithm, steps=8, seed=3, state=state).state, unbroken.state
    )


def test_its_moments_do_live_on():
    """Or the test above would hold for a solver that forgets."""
    algorithm = AIDBiO(inner=OwnAdam(), **AID_SETTINGS)
    first, second = steps_of(algorithm, 2)[1:]
    problem = noisy_sum(rows=20).problem()
    oracle = make(problem, 3)
    remembered = OwnAdam().go_on(oracle, first.x, first.y, oracle.streams(1), first.memory["y"])
    assert torch.equal(second.y, remembered.y)
    forgetful = OwnAdam().solve(oracle, first.x, first.y, oracle.streams(1))
    assert not torch.equal(second.y, forgetful.y)


def test_rounds_of_one_outer_step_go_on_with_the_memory_too():
    problem = quadratic(4.0).problem()
    oracle, inner = make(problem), Steps(Momentum(0.02), 3, keep=True)
    method = AccurateAID(1e-12, rounds=3)
    found = method.estimate(oracle, Stand(problem.x0, problem.y0), inner, oracle.streams(0))
    whole = Steps(Momentum(0.02), 9, keep=True).solve(
        oracle, problem.x0, problem.y0, oracle.streams(0)
    )
    assert torch.equal(found.inner.y, whole.y)
    assert found.inner.memory["steps taken"] == 9


def test_chunks_of_tasks_refuse_a_memory_that_they_cannot_share():
    """The momentum of the last outer step would move the variables of other chunks."""
    problem = noisy_sum(rows=20).problem()
    oracle = make(problem)
    view = View(0, oracle, (oracle, oracle))
    for keep in (True, False):
        algorithm = AIDBiO(inner=Steps(Momentum(0.1), 2, keep=keep), **AID_SETTINGS)
        state = algorithm.init(oracle, problem.x0, problem.y0)
        if keep:
            with pytest.raises(
                ValueError, match=r"Steps remembers .*chunk out of Tasks.*keep=False"
            ):
                algorithm.step(view, state)
        else:
            assert algorithm.step(view, state)[0].step == 1
