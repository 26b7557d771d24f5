"""The loop: what it records, when it stops, and what it says then."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bilevel.inner import NewtonCG

import bilevel
from bilevel.algorithms import AIDBiO, registry

from ..truth.dense_truth import relative
from ..truth.quadratics import flat, noisy_sum, quadratic, structured
from ..truth.watched import Watched

GOOD = AIDBiO(inner_steps=20, inner_lr=0.4, cg_steps=5, outer_lr=0.3)


def saddle() -> bilevel.Problem:
    """g is concave in the second coordinate of y: no hypergradient exists."""
    return bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum(),
        inner=lambda x, y: (y[0] - x) ** 2 - 0.1 * y[1] ** 2,
        x0=torch.tensor(0.5).double(),
        y0=torch.tensor([0.0, 0.1]).double(),
    )


def explosive() -> bilevel.Problem:
    """Gradient steps on g grow until exp overflows."""
    return bilevel.Problem(
        outer=lambda x, y: y.square().sum() + x.square().sum(),
        inner=lambda x, y: (y.exp() + (-y).exp() - x * y).sum(),
        x0=torch.ones(2).double(),
        y0=torch.ones(2).double(),
    )


def test_a_record_for_each_outer_step_says_what_happened():
    q, watched = quadratic(4.0), Watched(GOOD)
    seen = []
    result = bilevel.minimize(
        q.problem(),
        watched,
        steps=5,
        metrics={"distance": lambda x, y: (x - q.solution()).norm(), "one": lambda x, y: 1},
        callbacks=[seen.append],
    )
    assert [record.step for record in result.history] == [1, 2, 3, 4, 5]
    assert [progress.record for progress in seen] == result.history
    directions = watched.directions
    for progress, record in zip(seen, result.history, strict=True):
        x, y = progress.x, progress.y
        value = 0.5 * (y - q.t) @ (y - q.t) + 0.5 * q.rho * (x - q.s) @ (x - q.s)
        assert record.outer_value == pytest.approx(float(value), rel=1e-13)
        assert record.hypergradient_norm == pytest.approx(float(directions.pop(0).norm()))
        assert record.metrics == {"distance": float((x - q.solution()).norm()), "one": 1.0}
        assert progress.steps == 5
        assert record.report["inner_steps"] == 20
        assert record.report["inner_status"] == "step_limit"
        assert record["step"] == record.step  # by key too
    assert result.history[0].hypergradient_norm > 100 * result.history[-1].hypergradient_norm


@pytest.mark.parametrize("gives", [None, "high", torch.zeros(2), [1.0], 10**400])
def test_a_metric_that_gives_no_number_is_named(gives: Any):
    metrics = {"gap": lambda x, y: gives}
    with pytest.raises(TypeError, match="metric 'gap' must return one number, got"):
        bilevel.minimize(quadratic(4.0).problem(), GOOD, steps=2, metrics=metrics)


def test_counts_accumulate_over_the_history_and_leave_out_evaluation():
    problem = noisy_sum(rows=10).problem()
    metrics = {"f": lambda x, y: float(x.sum())}
    plain = bilevel.minimize(problem, GOOD, steps=4, evaluate_every=100)
    watched = bilevel.minimize(problem, GOOD, steps=4, metrics=metrics)
    assert plain.counts == watched.counts == watched.history[-1].counts
    assert [record.counts.gc_g for record in watched.history] == [20, 40, 60, 80]
    assert [record.counts.gc_f_samples for record in watched.history] == [20, 40, 60, 80]


def test_seconds_grow_and_leave_out_evaluation_and_callbacks(monkeypatch):
    clock = count()
    ticking = SimpleNamespace(perf_counter=lambda: next(clock))
    monkeypatch.setattr("bilevel.runs.minimize.time", ticking)

    def wait(*_: Any) -> float:
        return float(sum(next(clock) for _ in range(1000)))

    result = bilevel.minimize(
        quadratic(4.0).problem(),
        GOOD,
        steps=3,
        metrics={"wait": wait},
        callbacks=[lambda progress: wait() < 0],
    )
    seconds = [record.seconds for record in result.history]
    assert 0 < seconds[0] < seconds[1] < seconds[2] < 1000 < next(clock)


def test_evaluation_is_as_seldom_as_asked_but_always_at_the_end():
    result = bilevel.minimize(
        quadratic(4.0).problem(),
        GOOD,
        steps=8,
        evaluate_every=3,
        metrics={"m": lambda x, y: 1.0},
    )
    evaluated = [record.step for record in result.history if record.outer_value is not None]
    assert evaluated == [3, 6, 8]
    assert [record.step for record in result.history if record.metrics] == [3, 6, 8]
    assert len(result.history) == 8


def test_every_callback_sees_a_step_before_any_of_them_stops_the_run():
    calls = []
    result = bilevel.minimize(
        quadratic(4.0).problem(),
        GOOD,
        steps=50,
        callbacks=[
            lambda progress: progress.record.step == 3,
            lambda progress: calls.append(progress.record.step),  # returns None: go on
        ],
    )
    assert result.status == "stopped"
    assert calls == [1, 2, 3]
    assert result.state.step == 3
    assert result.message.startswith("A callback ended the run after 3 steps")


def test_a_small_hypergradient_ends_the_run_as_converged():
    result = bilevel.minimize(quadratic(4.0).problem(), GOOD, steps=200, tol=1e-6)
    assert result.status == "converged"
    assert len(result.history) < 200
    assert result.history[-1].hypergradient_norm <= 1e-6 < result.history[-2].hypergradient_norm
    assert "is at most the tolerance 1e-06" in result.message
    assert str(result) == f"converged after {result.state.step} steps: {result.message}"


def test_the_step_limit_is_not_a_failure_and_names_the_norm():
    result = bilevel.minimize(quadratic(4.0).problem(), GOOD, steps=3)
    norm = result.history[-1].hypergradient_norm
    assert result.status == "step_limit"
    assert result.message == f"All 3 steps were taken; the hypergradient's norm is {norm:.3g}."


def test_negative_curvature_is_reported_with_advice():
    algorithm = AIDBiO(inner_steps=1, inner_lr=0.1, cg_steps=10, outer_lr=0.01)
    result = bilevel.minimize(saddle(), algorithm, steps=3)
    assert result.status == "step_limit"
    assert (
        "In 3 of 3 steps the linear solve ended with 'negative_curvature': the inner loss is not "
        "strongly convex there: add a ridge" in result.message
    )


def test_inner_solves_that_miss_their_tolerance_are_reported_with_advice():
    algorithm = AIDBiO(inner=NewtonCG(tol=1e-12, steps=1, cg_steps=1), outer_lr=0.1)
    result = bilevel.minimize(quadratic(50.0).problem(), algorithm, steps=4)
    assert (
        "In 4 of 4 steps the inner solve ended with 'not_converged': its tolerance was not "
        "reached: allow more steps" in result.message
    )


def test_a_clean_run_has_no_warnings_in_its_message():
    result = bilevel.minimize(quadratic(4.0).problem(), GOOD, steps=3)
    assert "solve ended with" not in result.message


@pytest.mark.parametrize("kind", ["tensor", "dict", "tuple"])
def test_a_diverging_run_keeps_the_last_finite_point_and_gives_advice(kind):
    """With an outer step far beyond 2/L, x grows by a factor a step, to infinity in the end."""
    q = quadratic(4.0)
    algorithm = AIDBiO(inner=NewtonCG(1e-6), cg_steps=5, outer_lr=1e100)
    result = bilevel.minimize(q.problem(kind), algorithm, steps=50)
    assert result.status == "diverged"
    last = result.state.step
    assert 0 < last < 50
    assert len(result.history) == last
    assert torch.isfinite(flat(result.x)).all()
    assert torch.isfinite(flat(result.y)).all()
    assert type(result.x) is type(structured(q.s, kind))
    assert f"Step {last + 1} gave values that are not finite" in result.message
    assert "x and y are the best point that it saw" in result.message
    assert "smaller inner_lr" in result.message
    assert torch.equal(flat(result.x), q.problem().x0)  # every step led away
    again = bilevel.minimize(q.problem(kind), algorithm, steps=last)
    assert again.status == "step_limit"
    assert torch.equal(again.state.x, result.state.x)
    assert torch.equal(again.state.y, result.state.y)


@pytest.mark.parametrize("name", [n for n, e in registry().items() if "inner_lr" in e.demo])
def test_an_inner_loop_that_explodes_ends_every_algorithm_with_what_was_finite(name):
    result = bilevel.minimize(
        explosive(), registry()[name].make(inner_lr=1e3, outer_lr=1e3), steps=20
    )
    assert result.status == "diverged"
    assert torch.isfinite(result.x).all()
    assert torch.isfinite(result.y).all()
    assert len(result.history) == result.state.step < 20


def shapes(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape
    named = value if isinstance(value, dict) else dict(enumerate(value))
    return {name: leaf.shape for name, leaf in named.items()}


@pytest.mark.parametrize("kind", ["tensor", "dict", "tuple"])
def test_the_result_has_the_users_structure_detached(kind):
    q = quadratic(4.0)
    result = bilevel.minimize(q.problem(kind), GOOD, steps=15)
    for part, like in ((result.x, q.s), (result.y, q.c)):
        expected = structured(like, kind)
        assert type(part) is type(expected)
        assert shapes(part) == shapes(expected)
        assert not flat(part).requires_grad
    assert relative(flat(result.x), q.solution()) < 1e-7


@pytest.mark.parametrize("name", registry())
def test_what_the_user_gave_is_not_written_to(name):
    q = noisy_sum(rows=20)
    x0 = {"a": torch.zeros(3).double().requires_grad_()}
    y0, rows = torch.nn.Parameter(torch.zeros(5).double()), (q.A.clone(), q.B.clone(), q.c.clone())
    problem = bilevel.Problem(
        outer=lambda x, y, batch: (y - batch.data).square().mean() + x["a"].square().sum(),
        inner=lambda x, y, batch: (
            0.5 * y @ batch.data[0].mean(0) @ y
            - y @ (batch.data[1].mean(0) @ x["a"] + batch.data[2].mean(0))
        ),
        x0=x0,
        y0=y0,
        outer_data=q.t,
        inner_data=rows,
    )
    random = torch.random.get_rng_state()
    result = bilevel.minimize(problem, registry()[name].make(), steps=2)
    assert torch.equal(x0["a"], torch.zeros(3).double())
    assert torch.equal(y0, torch.zeros(5).double())
    assert x0["a"].grad is None
    assert y0.grad is None
    assert all(torch.equal(a, b) for a, b in zip(rows, (q.A, q.B, q.c), strict=True))
    assert torch.equal(random, torch.random.get_rng_state())
    result.x["a"].fill_(7.0)
    assert not x0["a"].detach().any()


@pytest.mark.parametrize("name", [1, ("a", 2), None])
def test_a_metrics_name_that_a_history_on_disk_could_not_have_is_refused(name: Any):
    with pytest.raises(TypeError, match=r"a metric's name must be .*got"):
        bilevel.minimize(quadratic().problem(), GOOD, metrics={name: lambda x, y: 1.0})


def test_a_metric_that_is_added_during_a_run_is_not_a_part_of_it():
    metrics = {"one": lambda x, y: 1.0}

    def add(progress: bilevel.Progress) -> None:
        metrics["two"] = lambda x, y: 2.0

    result = bilevel.minimize(quadratic().problem(), GOOD, metrics=metrics, callbacks=[add])
    assert all(record.metrics == {"one": 1.0} for record in result.history)


def test_a_finished_state_gives_a_result_without_steps():
    first = bilevel.minimize(quadratic(4.0).problem(), GOOD, steps=3)
    second = bilevel.minimize(quadratic(4.0).problem(), GOOD, steps=3, state=first.state)
    assert second.history == []
    assert torch.equal(second.x, first.x)
    assert second.status == "step_limit"


@pytest.mark.parametrize(
    "arguments",
    [{"steps": 0}, {"steps": 2.5}, {"evaluate_every": 0}, {"tol": -1.0}, {"seconds": 0.0},
     {"seed": -1}, {"checkpoint": ""}],
    ids=str,
)  # fmt: skip
def test_wrong_arguments_are_errors_that_quote_the_value(arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=rf"{name} must be .*got {value}"):
        bilevel.minimize(quadratic().problem(), GOOD, **arguments)


def test_the_start_is_copied_when_the_problem_is_made():
    x0, y0 = torch.zeros(2).double(), torch.zeros(2).double()
    problem = bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum(),
        inner=lambda x, y: (y - x).square().sum(),
        x0=x0,
        y0=y0,
    )
    before = bilevel.minimize(problem, GOOD, steps=2)
    x0.fill_(5.0), y0.fill_(5.0)
    assert torch.equal(bilevel.minimize(problem, GOOD, steps=2).x, before.x)


def test_what_a_callback_or_the_caller_writes_does_not_reach_the_run():
    q = quadratic(4.0)

    def scribble(progress: bilevel.Progress) -> None:
        progress.x.fill_(1e9), progress.y.fill_(1e9)
        progress.record.report.clear(), progress.record.metrics.update(mine=1.0)

    plain = bilevel.minimize(q.problem(), GOOD, steps=4)
    scribbled = bilevel.minimize(q.problem(), GOOD, steps=4, callbacks=[scribble])
    assert torch.equal(plain.x, scribbled.x)
    for record, other in zip(plain.history, scribbled.history, strict=True):
        assert (record.report, record.metrics) == (other.report, other.metrics)
    plain.x.fill_(1e9)
    assert torch.equal(plain.state.x, scribbled.state.x)
