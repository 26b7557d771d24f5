"""Derivatives of any two losses by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bilevel.oracles.base import Linearization, Oracle
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Rows


class AutogradOracle(Oracle):
    """Serves every problem. Variables that a loss does not use have zero derivatives."""

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        self.problem, self.seed = problem, seed
        self.x_size, self.y_size = problem.x_structure.size, problem.y_structure.size
        self.inner_rows = None if problem.inner_data is None else len(problem.inner_data)
        self.outer_rows = None if problem.outer_data is None else len(problem.outer_data)
        self.shared_batch, self.chunk = problem.shared_batch, problem.chunk
        self.dtype, self.device = problem.dtype, problem.device

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        with torch.no_grad():
            return self.problem.outer_loss(x, y, rows)

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        with torch.no_grad():
            return self.problem.inner_loss(x, y, rows)

    @torch.enable_grad()
    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        x, y = _leaf(x), _leaf(y)
        dx, dy = _derivatives(self.problem.outer_loss(x, y, rows), x, y)
        return dx, dy

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.inner_value_and_gradient(x, y, rows)[1]

    @torch.enable_grad()
    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        y = _leaf(y)
        value = self.problem.inner_loss(x.detach(), y, rows)
        return value.detach(), _derivatives(value, y)[0]

    @torch.enable_grad()
    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        x, y = _leaf(x), _leaf(y)
        value = self.problem.inner_loss(x, y, rows)
        (gradient,) = _derivatives(value, y, create_graph=True)
        return _GraphLinearization(x, y, gradient)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        return covector

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            return self.problem.start(x, y)

    @torch.enable_grad()
    def pull_start(self, x: Tensor, r: Tensor, rows: Rows = None) -> Tensor:
        x = _leaf(x)
        return _derivatives(self.problem.start(x, r.detach()) @ r, x)[0]


class Recording:
    """z = φ(x) with its graph, for one vector-Jacobian product; `bytes` is what the graph holds."""

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor) -> None:
        self._x, saved = _leaf(x), dict[int, int]()

        def note(tensor: Tensor) -> Tensor:
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


class _GraphLinearization(Linearization):
    """One graph of ∇y g; each product is one backward pass through it."""

    def __init__(self, x: Tensor, y: Tensor, gradient: Tensor) -> None:
        self._x, self._y, self._gradient = x, y, gradient

    def gradient(self) -> Tensor:
        return self._gradient.detach()

    def hvp(self, v: Tensor) -> Tensor:
        return self._backward(self._y, v)

    def cross(self, v: Tensor) -> Tensor:
        return self._backward(self._x, v)

    def diagonal(self) -> Tensor:
        raise NotImplementedError(
            "automatic differentiation cannot give the Hessian's diagonal cheaply: "
            "use no preconditioner, or give its diagonal as a tensor"
        )

    def approximate_inverse(self) -> Callable[[Tensor], Tensor]:
        raise NotImplementedError(
            "automatic differentiation knows no approximate inverse of the Hessian: use no "
            "preconditioner, or give a diagonal as a tensor"
        )

    def _backward(self, variable: Tensor, v: Tensor) -> Tensor:
        if not self._gradient.requires_grad:  # g is linear in y and without x
            return torch.zeros_like(variable)
        (product,) = torch.autograd.grad(
            self._gradient, variable, v, retain_graph=True, materialize_grads=True
        )
        return product


def _derivatives(value: Tensor, *variables: Tensor, create_graph: bool = False) -> list[Tensor]:
    """Zeros for variables that the value does not use on this batch."""
    if not value.requires_grad:
        return [torch.zeros_like(variable) for variable in variables]
    return list(
        torch.autograd.grad(value, variables, create_graph=create_graph, materialize_grads=True)
    )


def _leaf(variable: Tensor) -> Tensor:
    return variable.detach().requires_grad_()
