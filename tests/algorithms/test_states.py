"""State in, state out: the same bits again, nothing written, a run cut in two is one run."""

from __future__ import annotations

import copy
import io
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from bilevel.updates import Adam, Momentum, Projected

import bilevel
from bilevel.algorithms import DoubleLoop, Report, State, registry
from bilevel.oracles import Oracle, View, make
from bilevel.runs.history import in_words

from ..truth.quadratics import noisy_sum, quadratic
from ..truth.small_problems import cleaning
from ..truth.watched import is_noisy


def boxed(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-0.2, 0.2)


STOCHASTIC = [name for name, e in registry().items() if is_noisy(e.make())]
DOUBLE = [name for name, e in registry().items() if issubclass(e.algorithm, DoubleLoop)]
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "own": {},
    "adam": {"outer": Adam(0.01), "outer_lr": None},
    "projected": {"outer": Projected(Momentum(0.01), boxed), "outer_lr": None},
}


def assert_same(one: Any, other: Any) -> None:
    """Equal to the bit, at every depth."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, State):
        assert_same(vars(one), vars(other))
    else:
        assert one == other


def quick(name: str, **changes: Any) -> bilevel.algorithms.Algorithm:
    """The demo settings with shorter loops: bits need no accuracy."""
    entry = registry()[name]
    if changes.keys() - {field.name for field in fields(entry.algorithm)}:
        pytest.skip(f"it has no {' or '.join(changes)}")
    short = {"inner_steps": 3, "cg_steps": 3, "neumann_terms": 4}
    return entry.make(**{key: short[key] for key in entry.demo if key in short}, **changes)


def step(algorithm: bilevel.algorithms.Algorithm, oracle: Oracle, state: State) -> State:
    return algorithm.step(View.of(oracle, state.step), state)[0]


def reported(algorithm: bilevel.algorithms.Algorithm, oracle: Oracle, state: State) -> Any:
    return in_words(algorithm.step(View.of(oracle, state.step), state)[1])


def with_points(state: State, **points: torch.Tensor | None) -> State:
    """The state with other points; None takes one away."""
    moved = {**state.points, **points}
    return replace(state, points={k: point for k, point in moved.items() if point is not None})


def run(name: str, steps: int, state: State | None = None, seed: int = 3, **changes: Any):
    return bilevel.minimize(
        noisy_sum(rows=20).problem(),
        quick(name, **changes),
        steps=steps,
        seed=seed,
        state=state,
    )


def round_trip(state: State) -> State:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("name", registry())
def test_the_same_seed_gives_the_same_bits(name):
    first, second = run(name, 4), run(name, 4)
    assert_same(first.state, second.state)
    assert first.counts == second.counts
    assert [r.outer_value for r in first.history] == [r.outer_value for r in second.history]


@pytest.mark.parametrize("name", registry())
def test_another_seed_differs_where_there_is_something_to_draw(name):
    first, second = run(name, 4), run(name, 4, seed=4)
    assert torch.equal(first.x, second.x) == (name not in STOCHASTIC)


@pytest.mark.parametrize("name", STOCHASTIC)
def test_every_outer_step_draws_anew(name):
    """The next step, from the same state but for its number, sees other rows."""
    problem = noisy_sum(rows=20).problem()
    oracle, algorithm = make(problem, 3), quick(name, outer_lr=0.1, inner_lr=0.1)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    for _ in range(2):  # from v = 0 on, single loops need two steps to see the rows in x
        state = step(algorithm, oracle, state)
    first, second = (step(algorithm, oracle, replace(state, step=k)) for k in (2, 3))
    assert not torch.equal(first.x, second.x)


@pytest.mark.parametrize("changes", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("name", registry())
def test_a_step_writes_nothing_into_the_state_that_it_is_given(name, changes):
    problem = noisy_sum(rows=20).problem()
    oracle, algorithm = make(problem, 3), quick(name, **changes)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    for _ in range(3):
        before = copy.deepcopy(state)
        after, report = algorithm.step(View.of(oracle, state.step), state)
        assert isinstance(report, Report)
        assert_same(state, before)
        assert after.step == state.step + 1
        for field in ("x", "y"):
            assert getattr(after, field).dtype == getattr(state, field).dtype
            assert not getattr(after, field).requires_grad
        state = after


@pytest.mark.parametrize("name", registry())
def test_the_start_is_copied_not_kept(name):
    q = quadratic()
    problem = q.problem()
    oracle, algorithm = make(problem), quick(name)
    x0, y0 = problem.x0.clone(), problem.y0.clone()
    state = algorithm.init(oracle, x0, y0)
    x0.add_(1), y0.add_(1)
    assert torch.equal(state.x, problem.x0)
    assert torch.equal(state.y, problem.y0)
    assert torch.equal(state.points.get("y0", problem.y0), problem.y0)


@pytest.mark.parametrize("changes", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("name", registry())
def test_a_state_survives_saving_and_safe_loading(name, changes):
    state = run(name, 3, **changes).state
    assert_same(round_trip(state), state)


@pytest.mark.parametrize("changes", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("name", registry())
def test_a_run_killed_at_step_7_and_resumed_equals_the_unbroken_run_to_the_bit(name, changes):
    unbroken = run(name, 10, **changes)
    killed = run(name, 7, **changes)
    resumed = run(name, 10, round_trip(killed.state), **changes)
    assert_same(resumed.state, unbroken.state)
    assert [r.step for r in resumed.history] == [8, 9, 10]
    assert [dict(r.report) for r in killed.history + resumed.history] == [
        dict(r.report) for r in unbroken.history
    ]
    assert [r.outer_value for r in resumed.history] == [r.outer_value for r in unbroken.history[7:]]


@pytest.mark.parametrize("name", registry())
def test_a_run_leaves_the_state_that_it_goes_on_from_as_it_was(name):
    """Tables too, which the run itself writes into."""
    third = run(name, 3).state
    before = copy.deepcopy(third)
    once, again = run(name, 6, third).state, run(name, 6, third).state
    assert_same(third, before)
    assert_same(once, again)


@pytest.mark.parametrize("name", DOUBLE)
def test_warm_start_means_the_last_y_and_its_absence_the_first(name):
    q = quadratic(4.0)
    problem = q.problem()
    oracle = make(problem)
    far = torch.full((5,), 3.0).double()
    results = {}
    for warm in (True, False):
        algorithm = quick(name, warm_start=warm)
        state = step(algorithm, oracle, algorithm.init(oracle, problem.x0, problem.y0))
        moved = with_points(state, y=far)
        results[warm] = torch.equal(
            step(algorithm, oracle, state).y, step(algorithm, oracle, moved).y
        )
    assert results == {True: False, False: True}


def test_all_but_reverse_and_maml_are_warm_started_by_default():
    cold = [name for name in DOUBLE if not registry()[name].make().warm_start]
    assert cold == ["maml", "reverse"]


def test_aid_bio_starts_from_the_last_v_and_aid_cg_from_zero():
    """They differ by that alone: AID-BiO whose v is taken away steps as AID-CG does."""
    problem = cleaning()
    oracle = make(problem)
    settings = {"inner_steps": 3, "inner_lr": 1.0, "cg_steps": 2, "outer_lr": 5.0}
    bio = bilevel.algorithms.AIDBiO(**settings)
    cg = bilevel.algorithms.AIDCG(**settings)
    start = bio.init(oracle, problem.x0, problem.y0)
    first = step(bio, oracle, start)
    assert_same(step(cg, oracle, start), first)
    second = step(bio, oracle, first)
    assert_same(step(bio, oracle, with_points(first, v=None)), step(cg, oracle, first))
    assert not torch.equal(second.x, step(cg, oracle, first).x)
    # Two CG steps from a good v leave less than two from zero.
    warm, cold = (reported(method, oracle, first)["linear_residual"] for method in (bio, cg))
    assert warm < 0.5 * cold


@pytest.mark.parametrize("name", ["aid-bio", "hoag"])
def test_a_linear_solve_from_the_exact_v_takes_no_step(name):
    q = quadratic(4.0)
    problem = q.problem()
    oracle = make(problem)
    x = torch.ones(3).double()
    algorithm = quick(name)
    start = algorithm.init(oracle, x, q.inner_solution(x))
    exact = with_points(start, v=q.linear_solution(x))
    algorithm = replace(algorithm, inner=bilevel.inner.NewtonCG(1e-12))
    assert reported(algorithm, oracle, exact)["linear_steps"] <= 1
    assert reported(algorithm, oracle, with_points(exact, v=None))["linear_steps"] > 1
