"""Derivatives of any two losses by automatic differentiation: the only file that calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bilevel.oracles.plans import Descend
from bilevel.oracles.points import Inner, Linear, Oracle, Outer, Plan, Start
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Rows


class AutogradOracle(Oracle):
    """Serves every problem. Variables that a loss does not use have zero derivatives."""

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        self.problem, self.seed = problem, seed
        self.x_size, self.y_size = problem.x_structure.size, problem.y_structure.size
        self.inner_rows = None if problem.inner_data is None else len(problem.inner_data)
        self.outer_rows = None if problem.outer_data is None else len(problem.outer_data)
        self.dtype, self.device = problem.dtype, problem.device

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _Outer(self.problem, x, y, rows)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return _Inner(self.problem, x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return _Linear(self.problem, x, y, rows)

    def accelerate(self, plan: Plan[Any]) -> Any:
        """Gradient steps on one leaf that moves: no points, no copies of y."""
        if not isinstance(plan, Descend):
            return None
        # The one copy: from here on y moves in place, and the caller's y stays as it is.
        x, y, loss = plan.x.detach(), plan.y.clone(), self.problem.inner_loss
        for rows, lr in plan.steps:
            y.requires_grad_()
            with torch.enable_grad():
                value = loss(x, y, rows)
            here, y = y, y.detach()
            # Where the loss does not use y, there is no gradient to take. The graph is freed before
            # `sub_` writes: nothing that it has saved is overwritten while in use.
            if value.requires_grad:
                y = y.sub_(*torch.autograd.grad(value, here), alpha=lr)
        return y

    def start(self, x: Tensor, y: Tensor, rows: Rows = None) -> Start:
        return _Start(self.problem, x, y)


class _Outer(Outer):
    def __init__(self, problem: Problem, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._problem, self._x, self._y, self._rows = problem, x, y, rows

    def value(self) -> Tensor:
        with torch.no_grad():
            return self._problem.outer_loss(self._x, self._y, self._rows)

    @torch.enable_grad()
    def gradient(self) -> tuple[Tensor, Tensor]:
        x, y = _leaf(self._x), _leaf(self._y)
        of_x, of_y = _derivatives(self._problem.outer_loss(x, y, self._rows), x, y)
        return of_x, of_y


class _Inner(Inner):
    """Without a graph that lasts: each question costs one evaluation of g."""

    def __init__(self, problem: Problem, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._problem, self._x, self._y, self._rows = problem, x, y, rows

    def value(self) -> Tensor:
        with torch.no_grad():
            return self._problem.inner_loss(self._x, self._y, self._rows)

    def gradient(self) -> Tensor:
        return self.value_and_gradient()[1]

    def value_and_gradient(self) -> tuple[Tensor, Tensor]:
        y = _leaf(self._y)
        with torch.enable_grad():
            # x is no leaf here: no graph is built for derivatives that nobody asked for.
            value = self._problem.inner_loss(self._x.detach(), y, self._rows)
        return value.detach(), _derivatives(value, y)[0]

    @torch.enable_grad()
    def gradient_x(self) -> Tensor:
        x = _leaf(self._x)
        return _derivatives(self._problem.inner_loss(x, self._y.detach(), self._rows), x)[0]


class _Linear(Linear):
    """One graph of ∇y g; each product is one backward pass through it."""

    @torch.enable_grad()
    def __init__(self, problem: Problem, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._x, self._y = _leaf(x), _leaf(y)
        value = problem.inner_loss(self._x, self._y, rows)
        # ∇x g would need the graph of g as well: evaluated again in the rare case that it is asked.
        self._again = _Inner(problem, x, y, rows)
        self._value = value.detach()
        (self._gradient,) = _derivatives(value, self._y, create_graph=True)

    def value(self) -> Tensor:
        return self._value

    def gradient(self) -> Tensor:
        return self._gradient.detach()

    def gradient_x(self) -> Tensor:
        return self._again.gradient_x()

    def hvp(self, v: Tensor) -> Tensor:
        # A backward pass gives v'H, which is H v because H is symmetric.
        return self._backward(v, self._y)[0]

    def cross(self, v: Tensor) -> Tensor:
        return self._backward(v, self._x)[0]

    def both(self, v: Tensor) -> tuple[Tensor, Tensor]:
        of_y, of_x = self._backward(v, self._y, self._x)
        return of_y, of_x

    def _backward(self, v: Tensor, *variables: Tensor) -> tuple[Tensor, ...]:
        if not self._gradient.requires_grad:  # g is linear in y and without x
            return tuple(torch.zeros_like(variable) for variable in variables)
        # The graph is kept for the next product of the same solve.
        return torch.autograd.grad(
            self._gradient, variables, v, retain_graph=True, materialize_grads=True
        )


class _Start(Start):
    def __init__(self, problem: Problem, x: Tensor, y: Tensor) -> None:
        self._problem, self._x, self._y = problem, x, y

    def point(self) -> Tensor:
        with torch.no_grad():
            return self._problem.start(self._x, self._y)

    @torch.enable_grad()
    def pull(self, r: Tensor) -> Tensor:
        x = _leaf(self._x)
        # r also stands in for y, which a start that does not depend on x gives back: slope zero.
        return _derivatives(self._problem.start(x, r.detach()) @ r, x)[0]


class Recording:
    """z = φ(x) with its graph, for one vector-Jacobian product; `bytes` is what the graph holds."""

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor) -> None:
        self._x, saved = _leaf(x), dict[int, int]()

        def note(tensor: Tensor) -> Tensor:
            # By storage, so that views of one buffer count once.
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor.detach()  # itself, it would hold the graph that holds it: a leak

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, _unchanged):
            self._z = function(self._x)
        self.value, self.bytes = self._z.detach(), sum(saved.values())

    def pull(self, covector: Tensor) -> Tensor:
        """(∂φ/∂x)' covector; the graph is gone after it."""
        (product,) = torch.autograd.grad(self._z, self._x, covector, materialize_grads=True)
        return product


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def _derivatives(value: Tensor, *variables: Tensor, create_graph: bool = False) -> list[Tensor]:
    """Zeros for variables that the value does not use on this batch."""
    if not value.requires_grad:
        return [torch.zeros_like(variable) for variable in variables]
    return list(
        torch.autograd.grad(value, variables, create_graph=create_graph, materialize_grads=True)
    )


def _leaf(variable: Tensor) -> Tensor:
    return variable.detach().requires_grad_()
