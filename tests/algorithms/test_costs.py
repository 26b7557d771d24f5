"""Stated costs are counted costs, step by step."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest

import bilevel
from bilevel.algorithms import BSA, HOAG, TTSA, AIDBiO, DoubleLoop, Reverse, StocBiO, registry
from bilevel.oracles import CountingOracle, Counts, View, make
from bilevel.schedules import increasing

from ..truth.quadratics import noisy_sum

ROWS = 20
KINDS = ("gc_f", "gc_g", "jv", "hv")
# ITD takes solvers made of gradient steps alone.
TAKE_ANY_INNER = [
    name
    for name, entry in registry().items()
    if issubclass(entry.algorithm, DoubleLoop)
    and "inner" in {field.name for field in fields(entry.algorithm)}
    and name != "itd-bio"
]


def counted(algorithm: DoubleLoop, steps: int, seed: int = 0) -> list[Counts]:
    """What each outer step asked of the oracle.

    y has more numbers than the CG steps that are taken, so that CG does not end early.
    """
    problem = noisy_sum(rows=ROWS, sizes=(3, 30)).problem()
    oracle = CountingOracle(make(problem, seed))
    state, costs = algorithm.init(oracle, problem.x0, problem.y0), []
    for _ in range(steps):
        before = oracle.counts
        state, _ = algorithm.step(View.of(oracle, state.step), state)
        costs.append(oracle.counts - before)
    return costs


def quick(name: str) -> DoubleLoop:
    entry = registry()[name]
    short = {"inner_steps": 3, "cg_steps": 4, "neumann_terms": 5}
    return entry.make(**{key: short[key] for key in entry.demo if key in short})


def assert_costs_as_stated(algorithm: DoubleLoop, steps: int) -> None:
    for k, cost in enumerate(counted(algorithm, steps)):
        stated = algorithm.price(k).known
        assert {kind: cost[kind] for kind in stated} == stated, f"at step {k}"


@pytest.mark.parametrize("name", registry())
def test_each_step_costs_what_the_algorithm_states(name):
    assert_costs_as_stated(quick(name), 4)


@pytest.mark.parametrize("name", registry())
def test_what_is_left_unstated_is_what_chance_or_a_tolerance_decides(name):
    """HV may be left out (a random length), HV and Gc(g) (a tolerance), or all (tries, a coin)."""
    unstated, cost = set(KINDS) - set(quick(name).price(0).known), registry()[name].cost
    assert unstated in (set(), {"hv"}, {"hv", "gc_g"}, {"hv", "jv"}, set(KINDS))
    all_of_it = "tried" in cost or "coin" in cost
    assert bool(unstated) == ("uniform" in cost or "ε_k" in cost or "k*" in cost or all_of_it)
    assert (unstated == set(KINDS)) == all_of_it


@pytest.mark.parametrize(
    "name",
    [name for name in registry() if quick(name).price(0).gc_g == 3],  # D itself
)
def test_an_increasing_schedule_of_inner_steps_is_followed_and_stated(name):
    """⌈c (k+1)^(1/4)⌉ with c = 2, which passes 3 between k + 1 = 5 and 6."""
    algorithm = replace(quick(name), inner_steps=increasing(2.0))
    costs = counted(algorithm, 6)
    assert [cost.gc_g for cost in costs] == [2, 3, 3, 3, 3, 4]
    assert_costs_as_stated(algorithm, 6)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (
            AIDBiO(inner_steps=3, inner_lr=0.1, cg_steps=4),
            [(2, 3, 1, 4), (2, 3, 1, 5), (2, 3, 1, 5)],
        ),
        (
            AIDBiO(inner_steps=3, inner_lr=0.1, cg_steps=4, warm_start=False),
            [(2, 3, 1, 4)] * 3,
        ),
        (bilevel.algorithms.AIDCG(inner_steps=3, cg_steps=4), [(2, 3, 1, 4)] * 3),
        (bilevel.algorithms.AIDFP(inner_steps=3, cg_steps=4), [(2, 3, 1, 3)] * 3),
        (bilevel.algorithms.ITDBiO(inner_steps=4, inner_lr=0.1), [(2, 4, 4, 3)] * 3),
        (bilevel.algorithms.ITDBiO(inner_steps=4, inner_lr=0.1, truncate=2), [(2, 4, 2, 1)] * 3),
        (bilevel.algorithms.ITDBiO(inner_steps=4, inner_lr=0.1, truncate=0), [(2, 4, 0, 0)] * 3),
        (bilevel.algorithms.MAML(inner_steps=4), [(2, 4, 4, 4)] * 3),
        (Reverse(inner_steps=5, truncate=2), [(2, 5, 2, 1)] * 3),
        (Reverse(inner_steps=5, truncate=9), [(2, 5, 5, 4)] * 3),
        # Stretches of 2, 2 and 1 steps: the first step of each longer one is taken again.
        (Reverse(inner_steps=5, checkpoint=2), [(2, 7, 5, 4)] * 3),
        (
            StocBiO(inner_steps=3, inner_lr=0.1, neumann_terms=6, neumann_lr=0.1, batch=4),
            [(2, 3, 1, 6)] * 3,
        ),
    ],
    ids=str,
)
def test_the_costs_are_the_papers(algorithm, expected):
    """(Gc(f), Gc(g), JV, HV) as written by hand from the papers' algorithms."""
    costs = counted(algorithm, 3)
    assert [tuple(cost[kind] for kind in KINDS) for cost in costs] == expected
    assert_costs_as_stated(algorithm, 3)


@pytest.mark.parametrize("inner", [bilevel.inner.LBFGS(1e-3), bilevel.inner.NewtonCG(1e-3)])
@pytest.mark.parametrize("name", TAKE_ANY_INNER)
def test_with_an_inner_solver_of_ones_own_the_rest_is_still_stated(name, inner):
    algorithm = replace(quick(name), inner=inner)
    assert "gc_g" not in algorithm.price(0).known
    costs = counted(algorithm, 2)
    assert [cost.gc_f for cost in costs] == [2, 2]
    assert [cost.jv for cost in costs] == [1, 1]


@pytest.mark.parametrize("inner", [bilevel.inner.LBFGS(1e-3), bilevel.inner.NewtonCG(1e-3)])
def test_itd_refuses_what_is_not_made_of_gradient_steps_when_it_is_made(inner):
    with pytest.raises(ValueError, match=r"ITD differentiates gradient steps.*AID, which takes"):
        bilevel.algorithms.ITDBiO(inner=inner)


UPDATES = [
    bilevel.updates.Descent(0.1),
    bilevel.updates.Momentum(0.1),
    bilevel.updates.Nesterov(0.1),
    bilevel.updates.Adam(0.1),
]


@pytest.mark.parametrize("batch", [None, 4], ids=["all rows", "batches"])
@pytest.mark.parametrize("truncate", [None, 2, 0, 9])
@pytest.mark.parametrize("update", UPDATES, ids=str)
def test_itd_through_any_update_costs_what_it_states(update, truncate, batch):
    inner = bilevel.inner.Steps(update, 5, batch, keep=True)
    algorithm = bilevel.algorithms.ITDBiO(inner=inner, truncate=truncate, outer_lr=0.1)
    T = 5 if truncate is None else min(5, truncate)
    assert algorithm.price(1).known == {"gc_f": 2, "gc_g": 5, "jv": T, "hv": max(0, T - 1)}
    assert_costs_as_stated(algorithm, 3)


@pytest.mark.parametrize("truncate", [None, 2, 0])
def test_itd_through_updates_pays_for_a_learned_start_only_where_it_is_reached(truncate):
    from bilevel.hypergradients import ITD, LearnedStart, Stand

    problem = noisy_sum(rows=ROWS, sizes=(3, 30)).problem()
    oracle, method = CountingOracle(make(problem)), ITD(truncate, start=LearnedStart())
    for inner in (bilevel.inner.Steps(UPDATES[1], 5), bilevel.inner.GradientDescent(5, 0.1)):
        before = oracle.counts
        stand = Stand(problem.x0, problem.y0)
        method.estimate(oracle, stand, inner, oracle.streams(0))
        known = method.price(inner, warm=False).known
        assert {kind: (oracle.counts - before)[kind] for kind in known} == known
        assert known["hv"] == (5 if truncate is None else max(0, truncate - 1))


@pytest.mark.parametrize("name", TAKE_ANY_INNER)
@pytest.mark.parametrize("batch", [None, 4], ids=["all rows", "batches"])
def test_steps_of_any_update_are_stated_and_counted(name, batch):
    algorithm = replace(quick(name), inner=bilevel.inner.Steps(UPDATES[1], 6, batch))
    assert algorithm.price(0).known["gc_g"] == 6
    assert_costs_as_stated(algorithm, 3)


def test_bsa_takes_a_growing_number_of_inner_steps_and_a_random_number_of_products():
    Q = 4
    costs = counted(BSA(neumann_terms=Q), 26)
    assert [cost.gc_g for cost in costs] == [math.isqrt(k) + 1 for k in range(26)]  # ⌈√(k+1)⌉
    products = [cost.hv for cost in costs]
    assert set(products) == set(range(Q))
    assert [cost.hv_samples for cost in costs] == products  # single samples
    assert {cost.gc_f_samples for cost in costs} == {2}
    assert {cost.jv_samples for cost in costs} == {1}


def test_ttsa_takes_one_inner_step_on_one_sample():
    costs = counted(TTSA(neumann_terms=4), 20)
    assert {(c.gc_f, c.gc_g, c.jv) for c in costs} == {(2, 1, 1)}
    assert {(c.gc_f_samples, c.gc_g_samples, c.jv_samples) for c in costs} == {(2, 1, 1)}
    assert {c.hv for c in costs} == set(range(4))


def test_stocbio_pays_for_the_sizes_of_its_batches_by_role():
    batch = {"inner": 3, "outer": 5, "hessian": 2, "cross": 7}
    steps: dict[str, Any] = {"inner_steps": 4, "inner_lr": 0.1}
    settings = {**steps, "neumann_terms": 3, "neumann_lr": 0.25}
    (cost,) = counted(StocBiO(**settings, batch=batch), 1)
    assert (cost.gc_g_samples, cost.gc_f_samples, cost.jv_samples) == (4 * 3, 2 * 5, 7)
    assert cost.hv_samples == 3 * 2
    # With μ = 2 and η = 1/4: B Q (1 − ημ)^(j−1) = 6, 3, 1.5.
    (cost,) = counted(StocBiO(**settings, batch=batch, strong_convexity=2.0), 1)
    assert cost.hv_samples == 6 + 3 + 2
    assert cost.hv == 3


def test_stocbio_without_a_batch_pays_for_all_rows():
    settings = {"inner_steps": 4, "inner_lr": 0.1, "neumann_terms": 3, "neumann_lr": 0.1}
    (cost,) = counted(StocBiO(**settings, batch=None), 1)
    assert (cost.gc_g_samples, cost.gc_f_samples) == (4 * ROWS, 2 * ROWS)
    assert (cost.hv_samples, cost.jv_samples) == (3 * ROWS, ROWS)


def test_hoag_pays_more_for_a_smaller_tolerance():
    loose, tight = (counted(HOAG(tolerance=tol), 1)[0] for tol in (0.1, 1e-8))
    assert (loose.gc_f, loose.jv) == (tight.gc_f, tight.jv) == (2, 1)
    assert loose.gc_g < tight.gc_g
    assert loose.hv < tight.hv
