"""Implicit gradients in the user's own program, in place of `loss.backward()`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bilevel.arguments import instance
from bilevel.errors import UserError
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Estimate
from bilevel.hypergradients.finite_differences import FiniteDifferences
from bilevel.oracles.argmin import argmin as differentiable
from bilevel.oracles.autograd import AutogradOracle
from bilevel.problem.closures import Closures, FixedLoss
from bilevel.problem.problem import Problem
from bilevel.problem.sampling import Streams
from bilevel.problem.structure import Variables
from bilevel.runs.once import Inner, estimate_at, solve_inner
from bilevel.solvers.inner.base import InnerSolver, InnerStatus
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.base import Hessian, LinearSolver, LinearStatus
from bilevel.solvers.linear.cg import CG
from bilevel.solvers.measured import Measured


def backward(
    outer_loss: Callable[[], Tensor],
    inner_loss: Callable[[], Tensor],
    x: Tensor | nn.Module | Iterable[Tensor],
    y: Tensor | nn.Module | Iterable[Tensor],
    method: AID | FiniteDifferences | None = None,
) -> Tensor:
    """Add ∇x f − ∇x∇y g v, with ∇²y g v = ∇y f, to the `.grad` of each x, taking y as solved.

    Model, optimiser, schedule and logging stay with the caller. Both losses are called once; what
    a loss draws at random stays the same for all products.

    Args:
        outer_loss, inner_loss: f and g, as functions without arguments.
        x, y: the tensors that they use: parameters, a module, or a single tensor.
        method: how v is found: `AID(bilevel.linear.CG(20))` by default; with Neumann(K, lr) or
            Nystrom(rank) in place of CG, or inside `bilevel.hypergradients.FiniteDifferences`,
            which perturbs the values of y and restores them: around
            `AID(bilevel.linear.Identity(lr))` it is DARTS.

    Returns:
        f, detached.

    Example:
        >>> import torch, bilevel
        >>> x = torch.ones(1, requires_grad=True); y = torch.full((1,), 3.0, requires_grad=True)
        >>> value = bilevel.backward(
        ...     lambda: (y**2).sum(), lambda: ((y - 3 * x) ** 2).sum(), x=[x], y=[y])
        >>> float(value), x.grad
        (9.0, tensor([18.]))
    """
    method = AID() if method is None else method
    instance("method", method, AID | FiniteDifferences, "bilevel.AID(bilevel.linear.CG(20))")
    for name, loss in (("outer_loss", outer_loss), ("inner_loss", inner_loss)):
        instance(name, loss, Callable, f"a function without arguments: lambda: {name[:5]}(...)")
    differs = isinstance(method, FiniteDifferences)
    values: list[Tensor] = []

    def outer() -> Tensor:
        values.append(outer_loss())
        return values[-1]

    losses = Closures(outer, inner_loss, x, y, again=differs)
    try:
        found = estimate_at(AutogradOracle(losses), losses.x0, losses.y0, method)
    finally:
        if differs:
            losses.restore()
    if said := _doubt(found):
        warnings.warn(f"backward {said}", RuntimeWarning, stacklevel=2)
    parts = losses.x_structure.views(found.value)
    for tensor, part in zip(losses.x_structure.given, parts, strict=True):
        tensor.grad = part.clone() if tensor.grad is None else tensor.grad + part
    return values[0].detach()


def _doubt(found: Estimate) -> str:
    """What is suspicious about an estimate."""
    if found.linear.status is LinearStatus.NEGATIVE_CURVATURE:
        return (
            "found negative curvature of inner_loss at y, which is no minimum, so that the "
            "gradient is rough: take more steps for y first, add a ridge to inner_loss, or use ITD "
            "in bilevel.minimize"
        )
    if not found.value.any():
        return (
            "adds zeros: does one of the two losses use these tensors x, and none of them "
            "detached? See the FAQ: why is my hypergradient zero?"
        )
    return ""


def argmin(
    inner: Callable[[Any, Any], Tensor],
    y0: Variables,
    x: Variables,
    solver: InnerSolver | None = None,
    method: LinearSolver | None = None,
) -> Variables:
    """y*(x) = argmin_y inner(x, y) with an implicit gradient to x, for use in any torch program.

    The gradient can be differentiated again, so that argmins can be nested, and `torch.func.vmap`
    over x solves a batch of problems as one. Everything to be differentiated or batched must be in
    x: what `inner` closes over has no derivative, so that it is refused if it requires one. An
    inexact y makes the gradient inexact.

    Args:
        inner: a loss of x and y, strongly convex in y; what it draws at random is drawn once.
        y0: where to start: a tensor, a module, or a dict, tuple or list of such. A module comes
            back as a dict of tensors, for `torch.func.functional_call`; its buffers do not move.
        x: the same; its tensors may belong to a graph.
        solver: of the inner problem: one of `bilevel.inner`; Newton-CG by default.
        method: of the linear system: one of `bilevel.linear`; CG to a relative 1e-10 by default.

    Example:
        >>> import torch, bilevel
        >>> x = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
        >>> y = bilevel.argmin(lambda x, y: ((y - x**2) ** 2).sum(), torch.zeros_like(x), x)
        >>> slope, = torch.autograd.grad(y, x, create_graph=True)
        >>> y.item(), round(slope.item(), 6), torch.autograd.grad(slope, x)[0].round()
        (4.0, 4.0, tensor([2.], dtype=torch.float64))
    """
    solver, linear = solver or NewtonCG(), method or CG(1000, 1e-10)
    instance("solver", solver, InnerSolver, "bilevel.inner.NewtonCG()")
    instance("method", linear, LinearSolver, "bilevel.linear.CG(20)")
    flat_inner = FixedLoss(inner, x, y0)
    of_y = flat_inner.y_structure
    xs, start = flat_inner.x_structure.tensors(x), of_y.flatten(y0)

    def minimise(loss: Callable[..., Tensor], y: Tensor, parts: Sequence[Tensor]) -> Tensor:
        # In the shape of y, which has a row for each problem of a batch. Any f will do that uses
        # both: what is wrong with the loss is then said of "the inner loss".
        problem = Problem(
            lambda x, y: sum((part.sum() for part in x), start=y.sum()),
            lambda x, y: loss(y, *x),
            tuple(parts),
            y.detach(),
        )
        found = solve_inner(problem, tuple(parts), solver)
        _tell(found)
        solution: Tensor = found.y
        return solution

    def solve(product: Callable[[Tensor], Tensor], r: Tensor) -> Tensor:
        return linear.solve(_Products(product, len(r)), r).v

    try:
        found = differentiable(flat_inner, start, xs, minimise, solve)
    except (RuntimeError, ValueError) as error:
        if "escaped from inside a function being vmapped" not in str(error):
            raise
        raise UserError(
            "inner closes over a tensor that vmap batches: hand it over as a part of x"
        ) from error
    flat_inner.advance()
    return of_y.build(of_y.views(found))


def _tell(found: Inner) -> None:
    """Say that this is no minimum; a solver with a fixed number of steps was chosen as such."""
    if not math.isfinite(found.gradient_norm) or not bool(torch.isfinite(found.y).all()):
        raise UserError(
            f"argmin found no minimum: after {found.steps} steps y is not finite; is inner bounded "
            "from below? A ridge in it may help"
        )
    if found.status == InnerStatus.NOT_CONVERGED:
        warnings.warn(
            f"argmin has not converged: ‖∇y inner‖ is {found.gradient_norm:.2g} after "
            f"{found.steps} steps, so that the gradient is inexact, too; give a solver=, or make "
            "inner smooth and strongly convex",
            RuntimeWarning,
            stacklevel=2,
        )


class _Products(Hessian):
    """H, known only by its products."""

    def __init__(self, product: Callable[[Tensor], Tensor], size: int) -> None:
        self._product, self.size, self.streams = product, size, Streams(0, 0, None, None)

    def product(self, v: Tensor) -> Tensor:
        return self._product(v)

    def sampled_product(self, v: Tensor, batch: int | None) -> Tensor:
        return self._product(v)

    def rate(self, measured: Measured) -> float:
        raise UserError("a step size that is measured needs rows: give lr as a number")
