"""Stretches: the answers of plain steps up to rounding, however they are cut."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import BAMM, FSLA, SABA, SOBA, SPABA, SRBA, registry
from bilevel.algorithms.contract import Algorithm, State
from bilevel.kernels import usable
from bilevel.oracles import CountingOracle, Oracle, make
from bilevel.problem.ahead import Ahead
from bilevel.problem.sampling import Streams

STRETCHED = [name for name, entry in registry().items() if entry.make().stretches]
STEPS = 25


class Plain(CountingOracle):
    """One step after another, by points."""

    def accelerate(self, plan: Any) -> None:
        return None


def rows(seed: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return X, (X[:, 0] + torch.randn(count, generator=generator, dtype=torch.float64) > 0).long()


def logistic(**settings: Any) -> bilevel.Problem:
    given = {"penalty": bilevel.PerFeature(scale=0.5), **settings}
    return bilevel.logistic_problem(rows(0, 50), rows(1, 40), **given)


def small(name: str, **changes: Any) -> Algorithm:
    """With its demo settings, but smaller batches and steps."""
    entry = registry()[name]
    known = {field.name for field in fields(entry.algorithm)}
    short = {"inner_steps": 3, "neumann_terms": 4, "neumann_lr": 0.2, "batch": 8}
    settings = {"inner_lr": 0.1, "outer_lr": 0.05, **short, **changes}
    return entry.make(**{key: value for key, value in settings.items() if key in known})


def after(algorithm: Algorithm, oracle: Oracle, state: State, *pieces: int) -> State:
    for steps in pieces:
        state, _, _ = algorithm.stretch(oracle, state, steps)
    return state


def far(one: State, other: State) -> float:
    """The greatest difference of points, memories and tables, relative but for what is tiny."""
    pairs = [(one.points[name], other.points[name]) for name in other.points]
    pairs += [(one.tables[name], other.tables[name]) for name in other.tables]
    memory, truth = one.memory["x"], other.memory["x"]
    pairs += [(memory[n], m) for n, m in truth.items() if isinstance(m, Tensor)]
    return max(float((a - b).norm() / (1e-4 + b.norm())) for a, b in pairs)


@pytest.mark.parametrize("name", STRETCHED)
def test_a_compiled_stretch_is_as_many_plain_steps(name: str) -> None:
    assert usable()
    problem = logistic()
    fast, slow = CountingOracle(make(problem, 3)), Plain(make(problem, 3))
    algorithm = small(name)
    state = algorithm.init(make(problem, 3), problem.x0, problem.y0)
    (one, report, x), (two, plain, before) = (
        algorithm.stretch(oracle, state, STEPS) for oracle in (fast, slow)
    )
    assert fast.oracle.accelerate is not None
    assert one.step == two.step == STEPS
    assert far(one, two) < 1e-12
    assert float((x - before).norm()) < 1e-12
    assert report.norm == pytest.approx(plain.norm, rel=1e-9)
    assert fast.counts == slow.counts


@pytest.mark.parametrize(
    "settings",
    [
        {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.PerClass()},
        {"weights": torch.linspace(0, 1, 50).double(), "penalty": bilevel.PerWeight()},
        {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.Ridge(0.1)},
    ],
    ids=("learned weights", "given weights", "one penalty"),
)
@pytest.mark.parametrize("squared", [False, True], ids=("logistic", "squared"))
def test_a_stretch_knows_weights_and_penalties(settings: Any, squared: bool) -> None:
    kind = bilevel.regression_problem if squared else bilevel.logistic_problem
    problem = kind(rows(0, 50), rows(1, 40), **settings)
    algorithm, oracle = SOBA(inner_lr=0.1, outer_lr=0.5, batch=8), make(problem, 3)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    one, two = (after(algorithm, o, state, STEPS) for o in (oracle, Plain(oracle)))
    assert float((two.x - problem.x0).norm()) > 1e-3
    assert far(one, two) < 1e-12


@pytest.mark.parametrize(
    "settings",
    [
        {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.Ridge(0.1)},
        {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.PerClass()},
        {"penalty": bilevel.PerFeature()},
        {"weights": torch.linspace(0, 1, 150).double(), "penalty": bilevel.PerWeight()},
    ],
    ids=("cleaning", "per class", "per feature", "given weights"),
)
@pytest.mark.parametrize("name", ["saba", "stocbio"])
def test_a_stretch_knows_several_classes(name: str, settings: Any) -> None:
    X, _ = rows(0, 150)
    labels = torch.arange(150) % 3
    problem = bilevel.softmax_problem((X, labels), rows(1, 40), classes=3, **settings)
    # All 150 rows are more than a block of the kernels.
    for size in (8, None) if name == "saba" else (8,):
        algorithm, oracle = small(name, batch=size, outer_lr=0.5), make(problem, 3)
        y0 = torch.linspace(-1, 1, 12).double()
        state = algorithm.init(oracle, problem.x0, y0)
        one, two = (after(algorithm, o, state, STEPS) for o in (oracle, Plain(oracle)))
        assert float((two.x - problem.x0).norm()) > 1e-4
        assert far(one, two) < 1e-11


@pytest.mark.parametrize("kind", ["Adam", "AdaGrad", "Momentum", "Nesterov"])
def test_a_stretch_moves_x_by_the_update_that_was_asked_for(kind: str) -> None:
    problem = logistic()
    algorithm = SOBA(inner_lr=0.1, outer=getattr(bilevel.updates, kind)(0.05), batch=8)
    oracle = make(problem, 3)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    one, two = (after(algorithm, o, state, 10, STEPS) for o in (oracle, Plain(oracle)))
    assert far(one, two) < 1e-11
    assert one.memory["x"].get("t") == two.memory["x"].get("t")


@pytest.mark.parametrize("name", STRETCHED)
def test_the_bits_do_not_depend_on_where_a_stretch_is_cut(name: str) -> None:
    problem, algorithm = logistic(), small(name)
    oracle = make(problem, 3)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    before = state.copy()
    whole, cut = after(algorithm, oracle, state, 20), after(algorithm, oracle, state, 1, 12, 7)
    assert far(whole, cut) == 0
    assert far(state, before) == 0  # what was given is not written to


@pytest.mark.parametrize("size", [None, 1, 3, 8, bilevel.Blocks(8), bilevel.Blocks(64)])
def test_rows_drawn_ahead_are_those_of_each_step(size: int | None) -> None:
    for ask in ("rows", "block"):
        ahead = getattr(Ahead(5, 30, 40, 50, 20), ask)("inner", size)
        for k in range(40):
            drawn = getattr(Streams(5, 30 + k, 50, 20), ask)("inner", size)
            rows = drawn if ask == "rows" else drawn.rows
            found = ahead.rows[ahead.starts[k, 0] : ahead.stops[k, 0]]
            assert found.tolist() == (list(range(50)) if rows is None else rows.tolist())
            if ask == "block":
                assert (ahead.numbers[k], ahead.shares[k]) == (drawn.number, drawn.share)


def test_a_pass_visits_every_block_once_and_each_row_counts_the_same() -> None:
    """50 rows in blocks of 8: the last has 2, and comes up a quarter as often as the others."""
    passes, size = 4000, bilevel.Blocks(8)
    numbers = Ahead(0, 0, 7 * passes, 50, 50).block("outer", size).numbers
    first = numbers[:7]
    assert len(set(first)) >= 6
    visits = np.bincount(numbers, minlength=7)
    assert visits[:6] / visits[6] == pytest.approx(4.0, rel=0.1)


def test_a_run_in_stretches_ends_as_one_in_steps_and_keeps_what_was_evaluated() -> None:
    problem, algorithm = logistic(), SABA(inner_lr=0.1, outer_lr=0.1, batch=8)
    plain = bilevel.minimize(problem, algorithm, steps=70, evaluate_every=19)
    far_off = bilevel.minimize(problem, algorithm, steps=70, evaluate_every=30)
    assert [r.step for r in far_off.history] == [30, 60, 70]
    assert len(plain.history) == 70
    assert far_off.counts == plain.counts
    assert torch.allclose(far_off.x, plain.x, rtol=1e-10, atol=0)
    assert far_off.history[-1].outer_value == pytest.approx(plain.history[-1].outer_value)
    assert far_off.history[-1].hypergradient_norm == pytest.approx(
        plain.history[-1].hypergradient_norm, rel=1e-9
    )


@pytest.mark.parametrize("name", STRETCHED)
def test_a_shorter_run_that_goes_on_is_the_longer_run_to_the_bit(name: str) -> None:
    problem, settings = logistic(), {"evaluate_every": 20, "seed": 2}
    whole = bilevel.minimize(problem, small(name), steps=65, **settings)
    part = bilevel.minimize(problem, small(name), steps=33, **settings)
    found = bilevel.minimize(problem, small(name), steps=65, after=part.past, **settings)
    assert torch.equal(found.x, whole.x)
    assert far(found.state, whole.state) == 0
    assert [r.step for r in found.history] == [r.step for r in whole.history]
    assert found.counts == whole.counts


def test_a_stretch_that_diverges_ends_before_the_step_that_is_not_finite() -> None:
    problem = logistic()
    algorithm = SOBA(inner_lr=50.0, outer_lr=50.0, batch=8)
    result = bilevel.minimize(problem, algorithm, steps=400, evaluate_every=200)
    assert result.status is bilevel.Status.DIVERGED
    assert result.state.is_finite()
    state = after(algorithm, make(problem, 0), result.state, 1)
    assert not state.is_finite()
    assert result.counts.gc_g == result.state.step + 1  # that step was paid for


def test_what_a_subclass_changes_is_not_passed_over() -> None:
    class Mine(SOBA):
        def directions(self, oracle: Any, state: Any, streams: Any) -> Any:
            found = super().directions(oracle, state, streams)
            return replace_x(found)

    def replace_x(found: Any) -> Any:
        return found._replace(by_point={**found.by_point, "x": 0 * found.by_point["x"]})

    problem = logistic()
    result = bilevel.minimize(problem, Mine(batch=8), steps=40, evaluate_every=40)
    assert not Mine().stretches
    assert torch.equal(result.x, problem.x0)


@pytest.mark.parametrize("kind", [SOBA, SABA])
def test_implicit_steps_are_stable_for_every_penalty(kind: Any) -> None:
    inner = bilevel.updates.ImplicitDescent(0.5)
    steep = logistic(x0=torch.tensor([9.0, 0.0, -1.0, 2.0]).double())
    algorithm = kind(inner=inner, outer_lr=1e-6, batch=8)
    oracle = make(steep, 3)
    state = algorithm.init(oracle, steep.x0, steep.y0)
    one, two = (after(algorithm, o, state, STEPS) for o in (oracle, Plain(oracle)))
    assert far(one, two) < 1e-11


@pytest.mark.parametrize("kind", [SOBA, SABA, SRBA, SPABA, FSLA, BAMM])
def test_implicit_steps_on_all_rows_come_to_the_solution_beside_a_steep_penalty(kind: Any) -> None:
    inner = bilevel.updates.ImplicitDescent(0.5)
    steep = logistic(x0=torch.tensor([9.0, 0.0, -1.0, 2.0]).double())
    share = {"share": 1e-9} if kind is BAMM else {}
    algorithm = kind(inner=inner, outer_lr=1e-9, batch=None, **share)
    whole = bilevel.minimize(steep, algorithm, steps=400, evaluate_every=400)
    y = bilevel.solve_inner(steep, steep.x0, bilevel.inner.NewtonCG(1e-10)).y
    assert torch.allclose(whole.y, y, atol=1e-6)


def test_saba_s_tables_hold_the_rows_alone() -> None:
    """A penalty that the model knows is not remembered: with one block the table is ∇y g − c∘y."""
    problem, algorithm = logistic(), SABA(batch=None)
    state = algorithm.init(make(problem), problem.x0, torch.ones(4).double())
    around = make(problem).linearize(problem.x0, state.y)
    expected = around.gradient() - problem.x0.exp() * state.y
    assert torch.allclose(state.tables["g"][0], expected, rtol=1e-12)
