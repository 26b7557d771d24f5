"""Estimates by batches in one call equal those by one call after another."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bilevel
import bilevel.oracles
from bilevel.algorithms import BSA, StocBiO
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle
from bilevel.oracles import CountingOracle, View, do
from bilevel.oracles.plans import Contract, Descend, Implicit, Series, Step

from .compiled_cases import (
    PENALTIES,
    WEIGHTS,
    assert_near,
    every_layout,
    oracles_of,
    penalties,
    problem_of,
    rows_of,
    seeds,
    vectors,
)

reproducible = settings(derandomize=True, database=None, deadline=None, max_examples=15)
sizes = st.integers(1, 9)
every_weight = pytest.mark.parametrize("weights", WEIGHTS)


def drawn_plan(x, y, seed, steps, products, size, summed=True, outer=9):
    batches = rows_of(seed, 151, *([size] * steps), *(1 + i for i in range(products)), size)
    (outer_rows,) = rows_of(seed, 40, outer) if outer else (None,)
    taken = [Step(rows, 0.1 + 0.05 * t) for t, rows in enumerate(batches[:steps])]
    series = Series(batches[steps:-1], 0.2, 0.7, summed)
    return Implicit(x, y, taken, outer_rows, series, batches[-1])


def stated(layout, seed, penalty, weights):
    if weights != "learned" and isinstance(penalty, bilevel.Ridge):
        penalty = bilevel.PerFeature()  # x must hold something
    return problem_of(layout, seed, penalty, weights=WEIGHTS[weights])


@every_layout
@every_weight
@reproducible
@given(seeds, penalties, st.integers(1, 4), st.integers(0, 3), sizes, st.booleans())
def test_an_estimate_is_that_of_torch(
    layout, weights, seed, penalty, steps, products, size, summed
):
    slow, fast = oracles_of(stated(layout, seed, penalty, weights))
    x, y, _ = vectors(slow, seed)
    plan = drawn_plan(x, y, seed, steps, products, size, summed)
    assert (fast.accelerate(plan) is None) == (layout == "wide")  # whose kernels take one batch
    for found, truth in zip(do(plan, fast), plan.plainly(slow), strict=True):
        assert_near(found, truth, 1e-11)


@pytest.mark.parametrize("layout", ["dense", "background"])
@pytest.mark.parametrize("outer", [9, None])
def test_threads_share_an_estimate(layout, outer, monkeypatch):
    monkeypatch.setattr("bilevel.models.softmax.compiled.on_rows._WORTH_A_THREAD", 1)
    problem = problem_of(layout, 3)
    slow, _ = oracles_of(problem)
    x, y, _ = vectors(slow, 3)
    plan = drawn_plan(x, y, 3, 4, 3, 50, outer=outer)
    truth, before = plan.plainly(slow), torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            found = CompiledSoftmaxOracle(problem.model.form).accelerate(plan)
        finally:
            torch.set_num_threads(before)
        for ours, theirs in zip(found, truth, strict=True):
            assert_near(ours, theirs, 1e-11)


def test_an_estimate_that_would_take_long_is_made_of_several_calls(monkeypatch):
    monkeypatch.setattr("bilevel.models.softmax.compiled.on_rows._AT_ONCE", 1)
    slow, fast = oracles_of(problem_of("dense", 5))
    x, y, _ = vectors(slow, 5)
    plan = drawn_plan(x, y, 5, 3, 2, 4)
    for found, truth in zip(do(plan, fast), plan.plainly(slow), strict=True):
        assert_near(found, truth, 1e-11)


@every_layout
def test_what_is_given_is_not_written_to(layout):
    _, fast = oracles_of(problem_of(layout, 6))
    x, y, _ = vectors(fast, 6)
    before = x.clone(), y.clone()
    do(drawn_plan(x, y, 6, 2, 2, 3), fast)
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


ALGORITHMS = [
    StocBiO(inner_steps=3, inner_lr=0.2, neumann_terms=4, neumann_lr=0.2, outer_lr=1.0, batch=5),
    BSA(inner_steps=3, inner_lr=0.2, neumann_terms=4, neumann_lr=0.2, outer_lr=1.0),
]


class OneAfterAnother(CompiledSoftmaxOracle):
    """Does not know how to make an estimate in one call."""

    def accelerate(self, plan):
        return None if isinstance(plan, Implicit) else super().accelerate(plan)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
def test_algorithms_take_the_same_steps_and_count_the_same(algorithm):
    problem, runs = problem_of("dense", 7), []
    for kind in (CompiledSoftmaxOracle, OneAfterAnother):
        oracle = CountingOracle(kind(problem.model.form, seed=1))
        state = algorithm.init(oracle, problem.x0, problem.y0)
        for _ in range(4):
            state, _ = algorithm.step(View.of(oracle, state.step), state)
        runs.append((state, oracle.counts))
    (ours, counts), (theirs, expected) = runs
    assert counts == expected
    assert counts.gc_f == 8
    assert counts.jv == 4
    assert_near(ours.x, theirs.x, 1e-11)
    assert_near(ours.y, theirs.y, 1e-11)


@pytest.mark.parametrize("wrong", [-1, 151, 10**9])
@every_layout
def test_a_row_that_there_is_not_is_an_error(layout, wrong):
    _, fast = oracles_of(problem_of(layout, 8, PENALTIES[1]))
    x, y, v = vectors(fast, 8)
    rows = torch.tensor([3, wrong])
    good = drawn_plan(x, y, 8, 1, 1, 2)
    asked = [
        lambda: fast.inner(x, y, rows).gradient(),
        lambda: fast.inner(x, y, rows).value(),
        lambda: fast.outer(x, y, rows).value(),
        lambda: fast.outer(x, y, rows).gradient(),
        lambda: fast.inner(x, y, rows).gradient_x(),
        lambda: fast.linearize(x, y, rows).hvp(v),
        lambda: fast.linearize(x, y, rows).cross(v),
        lambda: do(Descend(x, y, [Step(rows, 0.1)]), fast),
        lambda: do(Contract(x, y, v, [rows], 0.1), fast),
        lambda: do(replace(good, cross=rows), fast),
        lambda: do(replace(good, outer=rows), fast),
    ]
    for ask in asked:
        with pytest.raises(IndexError, match=rf"no row {wrong} among (151|40)"):
            ask()
