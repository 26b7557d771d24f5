"""State in, state out: the same bits again, nothing written, a run cut in two is one run."""

from __future__ import annotations

import copy
import io
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

import bilevel
from bilevel.algorithms import State, registry
from bilevel.oracles import make_oracle

from ..truth.quadratics import noisy_sum, quadratic
from ..truth.small_problems import cleaning

STOCHASTIC = [
    name for name, e in registry().items() if "batch" in {f.name for f in fields(e.algorithm)}
]
OPTIMIZERS = {"own": {}, "adam": {"outer_optimizer": "adam", "outer_lr": 0.01}}


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


def quick(name: str, **changes: Any) -> bilevel.algorithms.DoubleLoop:
    """The demo settings with shorter loops: bits need no accuracy."""
    entry = registry()[name]
    short = {"inner_steps": 3, "cg_steps": 3, "neumann_terms": 4}
    return entry.make(**{key: short[key] for key in entry.demo if key in short}, **changes)


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
    """The second step, from the same state but for its number, sees other rows."""
    problem = noisy_sum(rows=20).problem()
    oracle, algorithm = make_oracle(problem, 3), quick(name, outer_lr=0.1, inner_lr=0.1)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    first, second = (algorithm.step(oracle, replace(state, step=k)) for k in (0, 1))
    assert not torch.equal(first.x, second.x)


@pytest.mark.parametrize("changes", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("name", registry())
def test_a_step_writes_nothing_into_the_state_that_it_is_given(name, changes):
    problem = noisy_sum(rows=20).problem()
    oracle, algorithm = make_oracle(problem, 3), quick(name, **changes)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    for _ in range(3):
        before = copy.deepcopy(state)
        after = algorithm.step(oracle, state)
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
    oracle, algorithm = make_oracle(problem), quick(name)
    x0, y0 = problem.x0.clone(), problem.y0.clone()
    state = algorithm.init(oracle, x0, y0)
    x0.add_(1), y0.add_(1)
    assert torch.equal(state.x, problem.x0)
    assert torch.equal(state.y, problem.y0)
    assert torch.equal(state.y0, problem.y0)


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
def test_warm_start_means_the_last_y_and_its_absence_the_first(name):
    q = quadratic(4.0)
    problem = q.problem()
    oracle = make_oracle(problem)
    far = torch.full((5,), 3.0).double()
    results = {}
    for warm in (True, False):
        algorithm = quick(name, warm_start=warm)
        state = algorithm.step(oracle, algorithm.init(oracle, problem.x0, problem.y0))
        moved = replace(state, y=far)
        results[warm] = torch.equal(
            algorithm.step(oracle, state).y, algorithm.step(oracle, moved).y
        )
    assert results == {True: False, False: True}


def test_all_but_reverse_and_maml_are_warm_started_by_default():
    cold = [name for name, entry in registry().items() if not entry.make().warm_start]
    assert cold == ["maml", "reverse"]


def test_aid_bio_starts_from_the_last_v_and_aid_cg_from_zero():
    """They differ by that alone: AID-BiO whose v is taken away steps as AID-CG does."""
    problem = cleaning()
    oracle = make_oracle(problem)
    settings = {"inner_steps": 3, "inner_lr": 1.0, "cg_steps": 2, "outer_lr": 5.0}
    bio = bilevel.algorithms.AIDBiO(**settings)
    cg = bilevel.algorithms.AIDCG(**settings)
    start = bio.init(oracle, problem.x0, problem.y0)
    first = bio.step(oracle, start)
    assert_same(cg.step(oracle, start), first)
    second = bio.step(oracle, first)
    assert_same(bio.step(oracle, replace(first, v=None)), cg.step(oracle, first))
    assert not torch.equal(second.x, cg.step(oracle, first).x)
    # Two CG steps from a good v leave less than two from zero.
    assert second.report["linear_residual"] < 0.5 * cg.step(oracle, first).report["linear_residual"]


@pytest.mark.parametrize("name", ["aid-bio", "hoag"])
def test_a_linear_solve_from_the_exact_v_takes_no_step(name):
    q = quadratic(4.0)
    problem = q.problem()
    oracle = make_oracle(problem)
    x = torch.ones(3).double()
    algorithm = quick(name)
    exact = State(0, x, q.inner_solution(x), problem.y0, v=q.linear_solution(x))
    algorithm = replace(algorithm, inner=bilevel.inner.NewtonCG(1e-12))
    assert algorithm.step(oracle, exact).report["linear_steps"] <= 1
    assert algorithm.step(oracle, replace(exact, v=None)).report["linear_steps"] > 1
