"""How x moves, and which inner solver moves y."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from bilevel.inner import GradientSteps, InnerSolver, Steps
from bilevel.updates import Adam, Descent, Look, TorchOptimizer

import bilevel
from bilevel.algorithms import AIDBiO, Algorithm, DoubleLoop, registry
from bilevel.errors import UserError
from bilevel.schedules import decaying

from ...truth.dense_truth import relative
from ...truth.examples import example, offered
from ...truth.quadratics import flat, noisy_sum, quadratic
from ...truth.watched import Watched

STEPS: dict[str, Any] = {"inner_steps": 10, "inner_lr": 0.4, "cg_steps": 10}
FACTORIES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "momentum": partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.02),
    "adamw": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.1),
    "adagrad": torch.optim.Adagrad,
    "amsgrad": partial(torch.optim.Adam, amsgrad=True, betas=(0.8, 0.9)),
}
INNER_SOLVERS = sorted(offered(bilevel.inner, InnerSolver))


def followed(algorithm: Algorithm, steps: int = 6) -> tuple[list[Any], list[Any]]:
    """The x after each step, and the hypergradient that it was made with."""
    xs: list[Any] = []

    def see(progress: bilevel.Progress) -> None:
        xs.append(flat(progress.x))

    watched = Watched(algorithm)
    bilevel.minimize(quadratic(4.0).problem("dict"), watched, steps=steps, callbacks=[see])
    return xs, watched.directions


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


@pytest.mark.parametrize("lr", [0.3, decaying(0.3, 0.5)], ids=str)
@pytest.mark.parametrize("name", ["outer_lr", "descent", "adam"])
def test_outer_steps_equal_torchs_to_the_bit(name, lr):
    given = {
        "outer_lr": {"outer_lr": lr},
        "descent": {"outer": Descent(lr)},
        "adam": {"outer": Adam(lr)},
    }[name]
    xs, gradients = followed(AIDBiO(**STEPS, **given))
    make = torch.optim.Adam if name == "adam" else torch.optim.SGD
    assert_same_path(xs, replayed(make, gradients, lr))


@pytest.mark.parametrize("name", FACTORIES)
def test_any_torch_optimiser_keeps_its_own_settings_and_memory(name):
    make = FACTORIES[name]
    xs, gradients = followed(AIDBiO(**STEPS, outer=TorchOptimizer(make)))
    assert_same_path(xs, replayed(make, gradients))


@pytest.mark.parametrize("lr", [0.07, decaying(0.3, 0.5)], ids=str)
@pytest.mark.parametrize("name", FACTORIES)
def test_an_lr_overrides_that_of_any_optimiser(name, lr):
    make = FACTORIES[name]
    xs, gradients = followed(AIDBiO(**STEPS, outer=TorchOptimizer(make, lr)))
    assert_same_path(xs, replayed(make, gradients, lr))


@pytest.mark.parametrize("name", FACTORIES)
def test_the_memory_of_any_optimiser_is_saved_loaded_and_never_written_to(name):
    problem = quadratic(4.0).problem()
    algorithm = AIDBiO(**STEPS, outer=TorchOptimizer(FACTORIES[name]))
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


@pytest.mark.parametrize(
    "name", [n for n, e in registry().items() if hasattr(e.algorithm, "outer_lr")]
)
def test_every_algorithm_follows_a_schedule_of_outer_steps(name):
    problem, schedule = noisy_sum(rows=20).problem(), decaying(0.2, 0.5)
    watched = Watched(registry()[name].make(outer_lr=schedule))
    x, seen = problem.x0, []
    bilevel.minimize(problem, watched, steps=3, callbacks=[lambda p: seen.append(p.state)])
    for k, (state, direction) in enumerate(zip(seen, watched.directions, strict=True)):
        assert torch.equal(state.x, x.sub(direction, alpha=schedule(k)))
        x = state.x


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"outer_lr": -0.1}, r"outer_lr must be a positive number, got -0.1"),
        ({"outer_lr": lambda k: -1.0}, r"outer_lr must be a positive number, got -1.0"),
    ],
    ids=["a negative step", "a schedule of negative steps"],
)
def test_wrong_outer_arguments_are_errors_at_construction(arguments, text):
    with pytest.raises(ValueError, match=text):
        AIDBiO(**arguments)


def accurate(name: str) -> InnerSolver:
    """The solver, with settings that solve a well-conditioned problem, where it has them."""
    chosen = {"steps": 120, "lr": 0.4, "tol": 1e-9, "batch": None, "update": Descent(0.4)}
    return example(getattr(bilevel.inner, name), **chosen)


@pytest.mark.parametrize("solver", INNER_SOLVERS)
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, entry in registry().items()
        if issubclass(entry.algorithm, DoubleLoop) and hasattr(entry.algorithm, "inner")
    ],
)
def test_any_inner_solver_serves_every_algorithm_that_takes_one(name, solver):
    q = quadratic(4.0)
    kind, inner = registry()[name].algorithm, accurate(solver)
    settings = q.good_settings(kind, inner=inner)
    if name == "itd-bio" and not isinstance(inner, GradientSteps | Steps):
        with pytest.raises(ValueError, match=f"ITD .*{solver} is not made of them.*or AID"):
            kind(**settings)
        return
    watched, seen = Watched(kind(**settings)), []
    bilevel.minimize(q.problem(), watched, steps=2, callbacks=[lambda p: seen.append(p.state)])
    first, second = watched.directions
    # The hypergradient of step k is at the x before it, with y solved there.
    assert relative(first, q.gradient(torch.zeros(3).double())) < 1e-7
    assert relative(second, q.gradient(seen[0].x)) < 1e-6
    assert relative(seen[1].y, q.inner_solution(seen[0].x)) < 1e-6


def test_a_factory_that_takes_names_for_parameters_is_told() -> None:
    update = TorchOptimizer(lambda named: torch.optim.SGD(named, 0.1), like=torch.nn.Linear(2, 1))
    with pytest.raises(UserError, match=r"by name: take their values, as in lambda named"):
        update.apply(torch.zeros(3), torch.ones(3), {}, Look())
