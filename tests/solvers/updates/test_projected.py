"""Points that must stay in a set: projections after the step, and stationarity with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bilevel.inner import Steps
from bilevel.updates import Adam, Descent, Momentum, Projected, Update
from torch import Tensor

import bilevel
from bilevel.algorithms import AIDBiO, registry

from ...truth.dense_truth import relative
from ...truth.quadratics import noisy_sum, quadratic
from ...truth.watched import Watched

STEPS: dict[str, Any] = {"inner_steps": 60, "inner_lr": 0.4, "cg_steps": 10}
INNER: list[Update] = [Descent(0.1), Momentum(0.05), Adam(0.05)]


def box(x: Tensor) -> Tensor:
    return x.clamp(0, 1)


def ball(x: Tensor) -> Tensor:
    return x if x.norm() <= 0.3 else 0.3 * x / x.norm()


def solution_in_a_box(q: Any) -> Tensor:
    """By projected descent on the closed form of Φ, until nothing moves."""
    x = torch.zeros(3).double()
    for _ in range(3000):
        x = box(x - 0.1 * q.gradient(x))
    return x


@pytest.mark.parametrize("update", INNER, ids=str)
@pytest.mark.parametrize("project", [box, ball])
def test_iterates_stay_in_the_set_and_the_norm_is_the_projected_one(update, project):
    watched = Watched(AIDBiO(**STEPS, outer=Projected(update, project)))
    seen: list[Tensor] = []
    q = quadratic(4.0)
    result = bilevel.minimize(
        q.problem(), watched, steps=25, callbacks=[lambda p: seen.append(p.x)]
    )
    assert all(torch.equal(x, project(x)) or relative(project(x), x) < 1e-15 for x in seen)
    before = [torch.zeros(3).double(), *seen[:-1]]
    for record, x, h in zip(result.history, before, watched.directions, strict=True):
        truth = float((x - project(x - h)).norm())
        assert record.hypergradient_norm == pytest.approx(truth, rel=1e-12, abs=1e-15)
    assert any(
        abs(r.hypergradient_norm - float(h.norm())) > 0.1
        for r, h in zip(result.history, watched.directions, strict=True)
    )


def test_the_solution_on_the_boundary_is_found_and_called_converged():
    q = quadratic(4.0)
    truth = solution_in_a_box(q)
    assert float(q.gradient(truth).norm()) > 0.1  # the boundary holds it
    assert int(((truth == 0) | (truth == 1)).sum()) > 0
    algorithm = AIDBiO(outer=Projected(Descent(0.1), lambda x: x.clamp(0, 1)))
    result = bilevel.minimize(q.problem(), algorithm, steps=400, tol=1e-6)
    assert result.status == "converged"
    torch.testing.assert_close(result.x, truth, rtol=1e-5, atol=1e-5)


def test_without_the_projection_the_same_run_leaves_the_set():
    result = bilevel.minimize(quadratic(4.0).problem(), AIDBiO(outer=Descent(0.1)), steps=40)
    assert not torch.equal(result.x, box(result.x))


@pytest.mark.parametrize(
    "name", [n for n, e in registry().items() if hasattr(e.algorithm, "outer")]
)
def test_every_algorithm_can_be_kept_in_a_set(name):
    problem = noisy_sum(rows=20).problem()
    outer, seen = Projected(Descent(0.3), box), []
    algorithm = registry()[name].make(outer=outer, outer_lr=None)
    watched = Watched(algorithm)
    result = bilevel.minimize(
        problem, watched, steps=4, callbacks=[lambda p, s=seen: s.append(p.x)]
    )
    assert all(torch.equal(x, box(x)) for x in seen)
    for record, x, h in zip(
        result.history, [problem.x0, *seen[:-1]], watched.directions, strict=True
    ):
        assert record.hypergradient_norm == pytest.approx(float((x - box(x - h)).norm()), rel=1e-12)
        assert algorithm.stationarity(x, h, record.step - 1) == record.hypergradient_norm


def test_an_inner_variable_can_be_kept_in_a_set():
    q = quadratic(4.0)
    inner = Steps(Projected(Descent(0.4), ball), 200)
    x = torch.ones(3).double()
    y = bilevel.solve_inner(q.problem(), x, inner).y
    assert float(y.norm()) == pytest.approx(0.3, rel=1e-9)
    gradient = q.A @ y - q.B @ x - q.c
    assert float((y - ball(y - gradient)).norm()) < 1e-9


def test_a_projection_that_works_in_place_is_harmless():
    q, point, gradient = quadratic(4.0), torch.full((3,), 2.0).double(), torch.ones(3).double()
    in_place = Projected(Descent(0.1), lambda x: x.clamp_(0, 1))
    moved, _ = in_place.apply(point, gradient, {}, bilevel.updates.Look())
    assert in_place.stationarity(point, gradient) == pytest.approx(3**0.5)
    assert torch.equal(moved, torch.ones(3).double())
    assert torch.equal(point, torch.full((3,), 2.0).double())
    assert torch.equal(gradient, torch.ones(3).double())
    xs = [
        bilevel.minimize(
            q.problem(), AIDBiO(**STEPS, outer=Projected(Momentum(0.1), project)), steps=6
        ).x
        for project in (box, lambda x: x.clamp_(0, 1))
    ]
    assert torch.equal(*xs)


class Staying(Update):
    """Gives the very point back."""

    def apply(self, point, gradient, memory, look):
        return point, memory


def test_a_projection_in_place_after_an_update_that_stays_leaves_the_point_alone():
    point = torch.full((3,), 2.0).double()
    update = Projected(Staying(), lambda x: x.clamp_(0, 1))
    moved, _ = update.apply(point, torch.zeros(3).double(), {}, bilevel.updates.Look())
    assert torch.equal(moved, torch.ones(3).double())
    assert torch.equal(point, torch.full((3,), 2.0).double())


def test_a_projection_keeps_no_graph():
    weight = torch.ones(3).double().requires_grad_()
    update = Projected(Descent(0.1), lambda x: x * weight)
    moved, _ = update.apply(
        torch.ones(3).double(), torch.ones(3).double(), {}, bilevel.updates.Look()
    )
    assert not moved.requires_grad


@pytest.mark.parametrize(
    ("project", "got"),
    [
        (lambda x: x[:2], r"shape \(2,\)"),
        (lambda x: x[None], r"shape \(1, 3\)"),
        (lambda x: x.sum(), r"shape \(\)"),
        (lambda x: x.numpy(), "array"),
        (lambda x: None, "None"),
        (lambda x: x.float(), "float32"),
    ],
    ids=["too short", "a row", "a number", "an array", "nothing", "another dtype"],
)
def test_a_projection_that_gives_no_such_point_is_a_clear_error(project, got):
    algorithm = AIDBiO(**STEPS, outer=Projected(Descent(0.1), project))
    says = rf"project must return a point of shape \(3,\).*got.*{got}"
    with pytest.raises(ValueError, match=says):
        bilevel.minimize(quadratic(4.0).problem(), algorithm, steps=1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Projected("adam", box), "update must be an object such as .* got 'adam'"),
        (lambda: Projected(Descent(0.1), (0, 1)), r"project must be a function .* got \(0, 1\)"),
        (lambda: Projected(Descent, box), "update must be an object such as .* got <class"),
    ],
)
def test_wrong_arguments_are_refused_when_it_is_made(make, text):
    with pytest.raises(TypeError, match=text):
        make()
