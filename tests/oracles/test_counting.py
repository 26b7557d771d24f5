"""The counting convention, as the docstring of `Counts` states it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.oracles import CountingOracle, Counts, Plan, Views, do, make
from bilevel.oracles import plans as plans_module
from bilevel.oracles.plans import Contract, Descend, Implicit, Retrace, Series, Step, Sweep, Trace
from bilevel.oracles.points import Forwarding
from bilevel.oracles.prices import Tally

from ..models.softmax.compiled_cases import CLASSES
from ..truth.small_problems import softmax

_INNER, _OUTER = 7, 5  # rows, without a common factor, so that none passes for the other
_BATCH = torch.tensor([0, 2, 3])


def without_data() -> bilevel.Problem:
    start = torch.ones(2, dtype=torch.float64)
    return bilevel.Problem(lambda x, y: x @ y, lambda x, y: y @ y - x @ y, start, start)


def with_data() -> bilevel.Problem:
    start = torch.ones(2, dtype=torch.float64)
    return bilevel.Problem(
        outer=lambda x, y, batch: ((x - y - batch.data) ** 2).mean(),
        inner=lambda x, y, batch: ((y - x * batch.data) ** 2).mean(),
        x0=start,
        y0=start,
        outer_data=torch.ones(_OUTER, 2, dtype=torch.float64),
        inner_data=torch.ones(_INNER, 2, dtype=torch.float64),
    )


# What is asked, and what it counts: the calls by name, and the level whose rows each call uses.
Ask = Callable[[Any, Tensor, Tensor, Tensor | None], Any]
_ASKED: dict[str, tuple[Ask, dict[str, int], int]] = {
    "outer value": (lambda o, x, y, r: o.outer(x, y, r).value(), {}, 0),
    "inner value": (lambda o, x, y, r: o.inner(x, y, r).value(), {}, 0),
    "outer gradient": (lambda o, x, y, r: o.outer(x, y, r).gradient(), {"gc_f": 2}, _OUTER),
    "inner gradient": (lambda o, x, y, r: o.inner(x, y, r).gradient(), {"gc_g": 1}, _INNER),
    "value and gradient": (
        lambda o, x, y, r: o.inner(x, y, r).value_and_gradient(),
        {"gc_g": 1},
        _INNER,
    ),
    "linearisation": (lambda o, x, y, r: o.linearize(x, y, r), {}, 0),
    "its gradient": (lambda o, x, y, r: o.linearize(x, y, r).gradient(), {"gc_g": 1}, _INNER),
    "gradient by x": (lambda o, x, y, r: o.inner(x, y, r).gradient_x(), {"gc_g": 1}, _INNER),
    "its value": (lambda o, x, y, r: o.linearize(x, y, r).value(), {}, 0),
    "its value and gradient": (
        lambda o, x, y, r: o.linearize(x, y, r).value_and_gradient(),
        {"gc_g": 1},
        _INNER,
    ),
    "its gradient by x": (
        lambda o, x, y, r: o.linearize(x, y, r).gradient_x(),
        {"gc_g": 1},
        _INNER,
    ),
    "its products at once": (
        lambda o, x, y, r: o.linearize(x, y, r).both(y),
        {"hv": 1, "jv": 1},
        _INNER,
    ),
    "points alone": (lambda o, x, y, r: (o.outer(x, y, r), o.inner(x, y, r)), {}, 0),
    "the start": (lambda o, x, y, r: o.start(x, y, r).pull(y), {}, 0),
    "pulling back": (lambda o, x, y, r: o.pull(x, x, r), {}, 0),
    "its hvp": (lambda o, x, y, r: o.linearize(x, y, r).hvp(y), {"hv": 1}, _INNER),
    "its cross": (lambda o, x, y, r: o.linearize(x, y, r).cross(y), {"jv": 1}, _INNER),
}

_POINTS = ("linearisation", "points alone")  # which are no answers yet


def stated(calls: dict[str, int], samples: int) -> Counts:
    return Counts(**calls, **{f"{name}_samples": n * samples for name, n in calls.items()})


@pytest.mark.parametrize("what", _ASKED)
def test_without_data_each_call_counts_as_one_sample(what: str) -> None:
    problem, (ask, calls, _) = without_data(), _ASKED[what]
    oracle = CountingOracle(make(problem))
    ask(oracle, problem.x0, problem.y0, None)
    assert oracle.counts == stated(calls, samples=1)


@pytest.mark.parametrize("what", _ASKED)
def test_all_rows_count_as_many_samples_as_the_losses_data_have(what: str) -> None:
    problem, (ask, calls, rows) = with_data(), _ASKED[what]
    oracle = CountingOracle(make(problem))
    ask(oracle, problem.x0, problem.y0, None)
    assert oracle.counts == stated(calls, samples=rows)


@pytest.mark.parametrize("what", _ASKED)
def test_a_batch_counts_as_many_samples_as_it_has_rows(what: str) -> None:
    problem, (ask, calls, _) = with_data(), _ASKED[what]
    oracle = CountingOracle(make(problem))
    ask(oracle, problem.x0, problem.y0, _BATCH)
    assert oracle.counts == stated(calls, samples=len(_BATCH))


@pytest.mark.parametrize("what", [what for what in _ASKED if what not in _POINTS])
@pytest.mark.parametrize("rows", [None, _BATCH], ids=["all", "batch"])
def test_the_tally_does_not_change_the_answers(what: str, rows: Tensor | None) -> None:
    problem, (ask, _, _) = with_data(), _ASKED[what]
    bare = make(problem)
    answers = [
        ask(oracle, problem.x0 + 1, problem.y0 - 2, rows) for oracle in (CountingOracle(bare), bare)
    ]
    torch.testing.assert_close(answers[0], answers[1], rtol=0.0, atol=0.0)


def test_products_of_one_linearisation_are_counted_one_by_one() -> None:
    problem = with_data()
    oracle = CountingOracle(make(problem))
    around = oracle.linearize(problem.x0, problem.y0, _BATCH)
    for _ in range(4):
        around.hvp(problem.y0)
    around.cross(problem.y0)
    assert oracle.counts == Counts(hv=4, hv_samples=12, jv=1, jv_samples=3)


def test_the_diagonal_and_the_approximate_inverse_are_free() -> None:
    """They are no products of the Hessian: the closed form has them from its parts."""
    problem = softmax()
    oracle = CountingOracle(make(problem))
    around = oracle.linearize(problem.x0, problem.y0)
    assert torch.equal(
        around.diagonal(), make(problem).linearize(problem.x0, problem.y0).diagonal()
    )
    around.inverse()(problem.y0)
    assert oracle.counts == Counts()


def plans(x: Tensor, y: Tensor, batches: list[Tensor | None]) -> dict[str, Plan[Any]]:
    """One of each kind, on these batches."""
    steps, v = [Step(rows, 0.1) for rows in batches], y.flip(0)
    path = torch.stack([y] * len(steps))
    series = Series(batches, 0.1, 1.0, summed=True)
    return {
        "descend": Descend(x, y, steps),
        "trace": Trace(x, y, steps),
        "retrace": Retrace(x, path, steps, Sweep(v, v, torch.zeros_like(x))),
        "contract": Contract(x, y, v, batches, 0.1),
        "implicit": Implicit(x, y, steps, batches[1], series, batches[0]),
    }


_BATCHES: dict[str, list[Tensor | None]] = {
    "batches": [torch.tensor([0, 2, 3]), torch.tensor([4]), torch.tensor([1, 3])],
    "all rows": [None, None],
    "some of each": [torch.tensor([0, 2]), None],
}


def test_every_plan_of_the_library_is_billed_here() -> None:
    own = {plan for plan in vars(plans_module).values() if _is_plan(plan)}
    assert own == {type(plan) for plan in plans(torch.ones(2), torch.ones(2), [None] * 2).values()}


def _is_plan(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Plan) and thing is not Plan


@pytest.mark.parametrize("batches", _BATCHES)
@pytest.mark.parametrize("kind", plans(torch.ones(2), torch.ones(2), [None] * 2))
def test_a_plan_is_billed_what_its_plain_form_pays(kind: str, batches: str) -> None:
    problem = with_data()
    plan = plans(problem.x0, problem.y0, _BATCHES[batches])[kind]
    plain = CountingOracle(make(problem))
    plan.plainly(plain)
    at_once = CountingOracle(Obliging(make(problem)))
    assert do(plan, at_once) == "done"
    assert at_once.counts == plain.counts
    assert plain.counts != Counts()


class Obliging(Forwarding):
    """Does every plan at once, and well enough for a count."""

    def accelerate(self, plan: Plan[Any]) -> str:
        return "done"


@pytest.mark.parametrize("batches", ["batches", "all rows"])
@pytest.mark.parametrize("kind", plans(torch.ones(2), torch.ones(2), [None] * 2))
def test_kernels_are_billed_what_torch_pays(kind: str, batches: str) -> None:
    problem = softmax(rows=_INNER, classes=CLASSES, weights=bilevel.SigmoidWeights())
    slow = CountingOracle(SoftmaxOracle(problem.model.form))
    fast = CountingOracle(CompiledSoftmaxOracle(problem.model.form))
    plan = plans(problem.x0, problem.y0, _BATCHES[batches])[kind]
    do(plan, slow), do(plan, fast)
    assert fast.counts == slow.counts != Counts()


def test_a_plan_that_nobody_does_at_once_is_not_billed() -> None:
    problem = with_data()
    oracle = CountingOracle(make(problem))
    for plan in plans(problem.x0, problem.y0, _BATCHES["batches"]).values():
        if not isinstance(plan, Descend):  # which automatic differentiation does at once
            assert oracle.accelerate(plan) is None
    assert oracle.counts == Counts()


def test_the_views_of_a_run_share_one_tally() -> None:
    plain = with_data()
    problem = bilevel.Problem(
        outer=plain.outer,
        inner=plain.inner,
        x0=torch.ones(2).double(),
        y0=torch.ones(2).double(),
        outer_data=torch.ones(_INNER, 2, dtype=torch.float64),
        inner_data=torch.ones(_INNER, 2, dtype=torch.float64),
        tasks=bilevel.Tasks(batch=3, chunk=2),
    )
    views = Views(problem, counts=Counts(gc_g=1, gc_g_samples=10))
    first, second = views.at(0), views.at(1)
    for oracle in (first.whole, *first.parts, second.whole):
        oracle.inner(problem.x0, problem.y0).gradient()
    views.bare(1).inner(problem.x0, problem.y0).gradient()  # a look that is no part of the method
    assert views.counts == Counts(gc_g=5, gc_g_samples=10 + 3 + 2 + 1 + 3)
    assert second.whole.counts == views.counts
    views.count_from(None)
    assert views.counts == views.at(5).whole.counts == Counts()


def test_a_tally_goes_on_from_where_it_is_told_to() -> None:
    problem, start = without_data(), Counts(gc_g=3, gc_g_samples=30, hv=1, hv_samples=10)
    oracle = CountingOracle(make(problem), Tally(start))
    oracle.inner(problem.x0, problem.y0).gradient()
    assert oracle.counts == Counts(gc_g=4, gc_g_samples=31, hv=1, hv_samples=10)
    assert oracle.counts - start == Counts(gc_g=1, gc_g_samples=1)
    assert start.gc_g == 3


def test_counts_that_were_read_do_not_change_afterwards() -> None:
    problem = without_data()
    oracle = CountingOracle(make(problem))
    before = oracle.counts
    oracle.outer(problem.x0, problem.y0).gradient()
    assert before == Counts()


def test_the_wrapper_passes_on_what_the_oracle_knows_of_the_problem() -> None:
    problem = with_data()
    bare = make(problem, seed=3)
    oracle = CountingOracle(bare)
    for name in ("x_size", "y_size", "inner_rows", "outer_rows", "seed", "dtype", "device"):
        assert getattr(oracle, name) == getattr(bare, name), name
    drawn = [o.streams(2).rows("inner", 4) for o in (oracle, bare)]
    assert torch.equal(drawn[0], drawn[1])


def test_the_histories_counts_are_cumulative_and_end_at_the_results() -> None:
    algorithm = bilevel.algorithms.AIDCG(inner_steps=3, cg_steps=2, inner_lr=0.1, outer_lr=0.1)
    result = bilevel.minimize(softmax(rows=_INNER), algorithm, steps=3)
    assert [record.counts.gc_g for record in result.history] == [3, 6, 9]
    assert [record.counts.gc_g_samples for record in result.history] == [21, 42, 63]
    assert [record.counts.jv for record in result.history] == [1, 2, 3]
    assert result.counts == result.history[-1].counts


def test_diagnostics_of_a_hypergradient_are_not_part_of_its_cost() -> None:
    problem = with_data()
    method = bilevel.AID(bilevel.linear.Neumann(terms=3, lr=0.1))
    h = bilevel.hypergradient(problem, torch.ones(2).double(), torch.ones(2).double(), method)
    assert h.counts == Counts(
        gc_f=2, gc_f_samples=2 * _OUTER, hv=3, hv_samples=3 * _INNER, jv=1, jv_samples=_INNER
    )
