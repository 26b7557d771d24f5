"""How x moves, and which inner solver moves y."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
import torch
from bilevel.inner import InnerSolver

import bilevel
from bilevel.algorithms import AIDBiO, DoubleLoop, registry
from bilevel.schedules import decaying

from ...truth.dense_truth import relative
from ...truth.quadratics import flat, noisy_sum, quadratic

STEPS: dict[str, Any] = {"inner_steps": 10, "inner_lr": 0.4, "cg_steps": 10}
FACTORIES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "momentum": partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.02),
    "adamw": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.1),
    "adagrad": torch.optim.Adagrad,
    "amsgrad": partial(torch.optim.Adam, amsgrad=True, betas=(0.8, 0.9)),
}
INNER_SOLVERS = sorted(
    name
    for name in bilevel.inner.__all__
    if isinstance(solver := getattr(bilevel.inner, name), type)
    and issubclass(solver, InnerSolver)
    and not getattr(solver, "__abstractmethods__", None)
)


def followed(algorithm: DoubleLoop, steps: int = 6) -> tuple[list[Any], list[Any]]:
    """The x after each step, and the hypergradient that it was made with."""
    xs, gradients = [], []

    def see(progress: bilevel.Progress) -> None:
        xs.append(flat(progress.x))
        gradients.append(progress.state.hypergradient)

    bilevel.minimize(quadratic(4.0).problem("dict"), algorithm, steps=steps, callbacks=[see])
    return xs, gradients


def replayed(make: Callable[..., Any], gradients: list[Any], lr: Any = None) -> list[Any]:
    """A plain loop of a torch optimiser, given the same gradients."""
    parameter = torch.nn.Parameter(torch.zeros(3).double())
    optimizer, xs = make([parameter]), []
    for k, gradient in enumerate(gradients):
        if lr is not None:
            optimizer.param_groups[0]["lr"] = lr(k) if callable(lr) else lr
        parameter.grad = gradient.clone()
        optimizer.step()
        xs.append(parameter.detach().clone())
    return xs


def assert_same_path(one: list[Any], other: list[Any]) -> None:
    assert [torch.equal(a, b) for a, b in zip(one, other, strict=True)] == [True] * len(one)


@pytest.mark.parametrize("lr", [None, 0.3, decaying(0.3, 0.5)], ids=str)
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_named_optimisers_equal_torchs_to_the_bit(name, lr):
    xs, gradients = followed(AIDBiO(**STEPS, outer_optimizer=name, outer_lr=lr))
    make, default = {"sgd": (torch.optim.SGD, 0.1), "adam": (torch.optim.Adam, 0.01)}[name]
    assert_same_path(xs, replayed(make, gradients, default if lr is None else lr))


@pytest.mark.parametrize("name", FACTORIES)
def test_any_torch_optimiser_keeps_its_own_settings_and_memory(name):
    make = FACTORIES[name]
    xs, gradients = followed(AIDBiO(**STEPS, outer_optimizer=make))
    assert_same_path(xs, replayed(make, gradients))


@pytest.mark.parametrize("lr", [0.07, decaying(0.3, 0.5)], ids=str)
@pytest.mark.parametrize("name", FACTORIES)
def test_an_outer_lr_overrides_that_of_any_optimiser(name, lr):
    make = FACTORIES[name]
    xs, gradients = followed(AIDBiO(**STEPS, outer_optimizer=make, outer_lr=lr))
    assert_same_path(xs, replayed(make, gradients, lr))


@pytest.mark.parametrize("name", FACTORIES)
def test_the_memory_of_any_optimiser_is_saved_loaded_and_never_written_to(name):
    problem = quadratic(4.0).problem()
    algorithm = AIDBiO(**STEPS, outer_optimizer=FACTORIES[name])
    unbroken = bilevel.minimize(problem, algorithm, steps=5).state
    third = bilevel.minimize(problem, algorithm, steps=3).state
    for _ in range(2):  # twice from the same state: the first go must leave it as it was
        file = io.BytesIO()
        torch.save(third, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        assert torch.equal(
            bilevel.minimize(problem, algorithm, steps=5, state=loaded).x, unbroken.x
        )
        assert torch.equal(bilevel.minimize(problem, algorithm, steps=5, state=third).x, unbroken.x)


@pytest.mark.parametrize("name", registry())
def test_every_algorithm_follows_a_schedule_of_outer_steps(name):
    problem, schedule = noisy_sum(rows=20).problem(), decaying(0.2, 0.5)
    algorithm = registry()[name].make(outer_lr=schedule)
    x, seen = problem.x0, []
    bilevel.minimize(problem, algorithm, steps=3, callbacks=[lambda p: seen.append(p.state)])
    for k, state in enumerate(seen):
        assert torch.equal(state.x, x.sub(state.hypergradient, alpha=schedule(k)))
        x = state.x


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"outer_optimizer": "lion"}, r"outer_optimizer must be 'auto', 'sgd', 'adam' or a.*lion"),
        ({"outer_lr": -0.1}, r"outer_lr must be a positive number, got -0.1"),
        ({"outer_lr": lambda k: -1.0}, r"outer_lr must be a positive number, got -1.0"),
    ],
    ids=["an unknown optimiser", "a negative step", "a schedule of negative steps"],
)
def test_wrong_outer_arguments_are_errors_at_construction(arguments, text):
    with pytest.raises(ValueError, match=text):
        AIDBiO(**arguments)


def accurate(name: str) -> InnerSolver:
    """The solver, with settings that solve a well-conditioned problem, where it has them."""
    chosen = {"steps": 120, "lr": 0.4, "tol": 1e-9, "batch": None}
    solver = getattr(bilevel.inner, name)
    return solver(**{f.name: chosen[f.name] for f in fields(solver) if f.name in chosen})


@pytest.mark.parametrize("solver", INNER_SOLVERS)
@pytest.mark.parametrize(
    "name", [n for n, e in registry().items() if "inner" in {f.name for f in fields(e.algorithm)}]
)
def test_any_inner_solver_serves_every_algorithm_that_takes_one(name, solver):
    q = quadratic(4.0)
    algorithm = registry()[name].algorithm(
        **q.good_settings(registry()[name].algorithm, inner=accurate(solver))
    )
    seen = []
    bilevel.minimize(
        q.problem(), algorithm, steps=2, callbacks=[lambda p: seen.append((p.x, p.state))]
    )
    (first_x, first), (_, second) = seen
    # The hypergradient of step k is at the x before it, with y solved there.
    assert relative(first.hypergradient, q.gradient(torch.zeros(3).double())) < 1e-7
    assert relative(second.hypergradient, q.gradient(first_x)) < 1e-6
    assert relative(second.y, q.inner_solution(first_x)) < 1e-6
