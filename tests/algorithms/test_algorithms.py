"""Every registered algorithm gets where it should: x* of quadratics, stationary softmax points."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

import bilevel
from bilevel.algorithms import DoubleLoop, registry
from bilevel.schedules import decaying

from ..truth import dense_truth
from ..truth.dense_truth import relative
from ..truth.quadratics import flat, interpolating_sum, noisy_sum, quadratic, structured
from ..truth.small_problems import cleaning
from ..truth.watched import is_noisy

ARGUMENTS = {name: {f.name for f in fields(e.algorithm)} for name, e in registry().items()}
STOCHASTIC = [name for name, e in registry().items() if is_noisy(e.make())]
# Single loops and value functions have truths of their own: test_single_loops.py and
# test_value_function.py.
IMPLICIT = [
    name
    for name in STOCHASTIC
    if issubclass(registry()[name].algorithm, DoubleLoop) and registry()[name].make().price(0).jv
]
DETERMINISTIC = [n for n, e in registry().items() if n not in STOCHASTIC and not e.bias]
SEEDS = (0, 1, 2)
CASES = [
    pytest.param(1.0, (1, 1), torch.float64, "tensor", id="scalars"),
    pytest.param(4.0, (3, 5), torch.float64, "dict", id="dict"),
    pytest.param(4.0, (4, 3), torch.float32, "tuple", id="more-x-than-y"),
    pytest.param(10.0, (2, 8), torch.float64, "tensor", id="ill-conditioned"),
]
# In single precision, g itself is known to 1e-7 only, so that a line search on its values
# (HOAG's inner solver) finds y to the square root of that.
TOLERANCES = {torch.float64: 1e-7, torch.float32: 1e-4}


def make(name: str, **settings: object) -> bilevel.algorithms.DoubleLoop:
    """The algorithm with those of the settings that it has."""
    known = {key: value for key, value in settings.items() if key in ARGUMENTS[name]}
    return registry()[name].algorithm(**known)


def enough(name: str) -> int:
    """Outer steps: eight of the best length, or as many as one that finds its own may need."""
    return 8 if "outer_lr" in ARGUMENTS[name] else registry()[name].steps


def tail_average(problem: bilevel.Problem, algorithm: object, steps: int, seed: int):
    """The mean of x over the second half of a run: what remains is bias, and little noise."""
    path = []
    bilevel.minimize(
        problem,
        algorithm,
        steps=steps,
        seed=seed,
        callbacks=[lambda progress: path.append(progress.x)],
        evaluate_every=steps,
    )
    return torch.stack(path[steps // 2 :]).mean(0)


@pytest.mark.parametrize("name", DETERMINISTIC)
@pytest.mark.parametrize(("kappa", "sizes", "dtype", "kind"), CASES)
def test_deterministic_algorithm_reaches_the_closed_form_solution(name, kappa, sizes, dtype, kind):
    q = quadratic(kappa, sizes, dtype)
    algorithm = make(name, **q.good_settings(registry()[name].algorithm, drop=1e-4))
    result = bilevel.minimize(q.problem(kind), algorithm, steps=enough(name))
    x_star = q.solution()
    assert relative(flat(result.x), x_star) < TOLERANCES[dtype]
    assert relative(flat(result.y), q.inner_solution(x_star)) < 10 * TOLERANCES[dtype]
    assert flat(result.x).dtype == flat(result.y).dtype == dtype
    assert type(result.x) is type(structured(x_star, kind))


@pytest.mark.parametrize("seed", SEEDS[:2])
@pytest.mark.parametrize("name", IMPLICIT)
def test_stochastic_algorithm_reaches_the_solution_where_the_noise_vanishes(name, seed):
    q = interpolating_sum()
    algorithm = make(
        name,
        inner_steps=3,
        inner_lr=1 / 3,
        neumann_terms=6,
        neumann_lr=1 / 3,
        outer_lr=0.1,
        batch=2,
    )
    result = bilevel.minimize(q.problem(), algorithm, steps=60, seed=seed, evaluate_every=60)
    assert relative(result.x, q.solution()) < 1e-6
    assert relative(result.y, q.inner_solution(q.solution())) < 1e-6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", IMPLICIT)
def test_stochastic_algorithm_settles_around_the_solution_where_the_noise_stays(name, seed):
    q = noisy_sum(noise=0.2)
    algorithm = make(
        name,
        inner_steps=2,
        inner_lr=decaying(0.5, 0.4),
        neumann_terms=5,
        neumann_lr=0.5,
        outer_lr=decaying(0.2, 0.7),
        batch=8,
    )
    average = tail_average(q.problem(), algorithm, steps=60, seed=seed)
    # A series of fixed length leaves the noise of its batches; a random length adds its own.
    tolerance = 0.05 if "hv" in algorithm.price(0).known else 0.25
    assert relative(average, q.solution()) < tolerance  # the start, zero, is at 1


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_deterministic_algorithm_reaches_a_stationary_point_of_softmax_regression(name):
    problem = cleaning()
    accurate = {"inner_steps": 40, "cg_steps": 40, "tolerance": 1e-8, "drop": 1e-4}
    algorithm = make(name, inner_lr=2.0, outer_lr=22.0, **accurate)
    result = bilevel.minimize(problem, algorithm, steps=enough(name))
    start = dense_truth.hypergradient(problem, problem.x0).norm()
    assert dense_truth.hypergradient(problem, result.x).norm() < 1e-6 * start


@pytest.mark.parametrize("seed", SEEDS[-1:])
@pytest.mark.parametrize("name", IMPLICIT)
def test_stochastic_algorithm_nears_a_stationary_point_of_softmax_regression(name, seed):
    problem = cleaning()
    algorithm = make(
        name,
        inner_steps=2,
        inner_lr=decaying(1.5, 0.4),
        neumann_terms=10,
        neumann_lr=2.0,
        outer_lr=decaying(10.0, 0.85),
        batch={"inner": 10, "hessian": 10},
    )
    result = bilevel.minimize(problem, algorithm, steps=45, seed=seed, evaluate_every=45)
    start = dense_truth.hypergradient(problem, problem.x0).norm()
    fraction = 0.1 if "hv" in algorithm.price(0).known else 0.4  # as above
    assert dense_truth.hypergradient(problem, result.x).norm() < fraction * start


@pytest.mark.parametrize("name", registry())
def test_the_registered_demo_settings_work_on_a_small_problem_with_data(name):
    q = noisy_sum(noise=0.2)
    average = tail_average(q.problem(), registry()[name].make(), steps=15, seed=0)
    assert relative(average, q.solution()) < 0.5  # single samples take more steps than this


@pytest.mark.parametrize("name", registry())
def test_the_registry_says_what_an_algorithm_is(name):
    entry = registry()[name]
    assert entry.name == name
    assert getattr(bilevel.algorithms, entry.algorithm.__name__) is entry.algorithm
    assert entry.summary.endswith(".")
    letters = {"gc_f": "Gc(f)", "gc_g": "Gc(g)", "jv": "JV", "hv": "HV"}
    assert entry.cost
    assert all(letters[kind] in entry.cost for kind in entry.make().price(0).known)
    if "Gc(f) 2," in entry.cost:
        assert entry.make().price(0).gc_f == 2
    assert any(year in entry.paper for year in map(str, range(1990, 2100)))
    if "outer_lr" not in ARGUMENTS[name]:
        return
    changed = entry.make(outer_lr=0.123)
    assert changed.outer_lr == 0.123
    assert {key: getattr(changed, key) for key in entry.demo if key != "outer_lr"} == {
        key: value for key, value in entry.demo.items() if key != "outer_lr"
    }


def test_the_papers_algorithms_are_all_there():
    names = {entry.algorithm.__name__ for entry in registry().values()}
    assert names >= {
        "AIDBiO", "ITDBiO", "StocBiO", "BSA", "TTSA", "HOAG", "Reverse", "AIDFP", "AIDCG",
    }  # fmt: skip
