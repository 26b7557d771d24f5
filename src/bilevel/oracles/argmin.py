"""A differentiable argmin: y*(x) with implicit derivatives in x, of any order.

y*(x) solves ∇y g(x, y) = 0, so a covector r of y* becomes the covector −(∂∇y g/∂x)' H⁻¹ r of x,
with H = ∇²y g. The solve H⁻¹ r is itself a function whose derivative is another solve; so the
derivative can be differentiated again, and argmins can be nested. The points of an oracle are
differentiated once and for all: they cannot serve here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bilevel.errors import UserError
from bilevel.oracles.derivatives import Function, derivatives, vmap
from bilevel.oracles.twice import refuse_wrong, told

# inner(y, *x); a function that minimises it from a given y; one that solves H v = r by products.
Loss = Callable[..., Tensor]
Minimise = Callable[[Loss, Tensor, Sequence[Tensor]], Tensor]
Solve = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]


def argmin(
    inner: Loss, y0: Tensor, x: Sequence[Tensor], minimise: Minimise, solve: Solve
) -> Tensor:
    """argmin_y inner(y, *x), differentiable in x; not in what `inner` closes over."""
    found: Tensor = _Argmin.apply(inner, minimise, solve, y0, *x)  # type: ignore[no-untyped-call]
    return found


_INSTEAD = (
    "{} cannot pass through bilevel.argmin: use torch.autograd.functional.jacobian or hessian, "
    "torch.func.grad, or vmap"
)


class _Reverse(Function):
    """Derivatives in reverse mode only."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise UserError(_INSTEAD.format("forward mode (torch.func.jvp, jacfwd, hessian)"))


class _Argmin(_Reverse):
    @staticmethod
    def forward(inner: Any, minimise: Any, solve: Any, y0: Any, *x: Any) -> Any:
        return minimise(inner, y0.detach(), [part.detach() for part in x])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.inner, _, ctx.solve, _, *x = inputs
        ctx.save_for_backward(output, *x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        y, *x = ctx.saved_tensors  # y with its graph: a second derivative passes through here again
        _, *found = _implicit(ctx, grads[0], y, x, lambda slope, y: slope, by_y=False)
        return None, None, None, None, *found

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, inner: Any, minimise: Any, solve: Any, y0: Any, *x: Any
    ) -> Any:
        y0 = _batched(y0, in_dims[3], info)
        return _Argmin.apply(_rows(inner, in_dims), minimise, solve, y0, *x), 0  # type: ignore[no-untyped-call]


class _Solve(_Reverse):
    """v with ∇²y g(x, y) v = r."""

    @staticmethod
    def forward(inner: Any, solve: Any, r: Any, y: Any, *x: Any) -> Any:
        with torch.enable_grad(), told():
            y = y.detach().requires_grad_()
            value = inner(y, *(p.detach() for p in x))
            refuse_wrong(value)
            slope = derivatives([value], [y], create_graph=True)[0]

        def product(v: Tensor) -> Tensor:
            with told():
                return derivatives([slope], [y], [v.view_as(y)], retain_graph=True)[0].reshape(-1)

        return solve(product, r.reshape(-1)).view_as(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.inner, ctx.solve, _, *points = inputs
        ctx.save_for_backward(output, *points)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        v, y, *x = ctx.saved_tensors

        def product(slope: Tensor, y: Tensor) -> Tensor:
            return derivatives([slope], [y], [v], create_graph=True)[0]

        return None, None, *_implicit(ctx, grads[0], y, x, product, by_y=True)

    @staticmethod
    def vmap(info: Any, in_dims: Any, inner: Any, solve: Any, r: Any, y: Any, *x: Any) -> Any:
        r, y = _batched(r, in_dims[2], info), _batched(y, in_dims[3], info)
        return _Solve.apply(_rows(inner, in_dims), solve, r, y, *x), 0  # type: ignore[no-untyped-call]


def _implicit(
    ctx: Any,
    r: Tensor,
    y: Tensor,
    x: Sequence[Tensor],
    residual: Callable[[Tensor, Tensor], Tensor],
    by_y: bool,
) -> tuple[Any, ...]:
    """H⁻¹r, and −(∂residual)' H⁻¹r in x and, if asked, in y; can be differentiated again."""
    again, needed = torch.is_grad_enabled(), ctx.needs_input_grad[4:]
    u: Tensor = _Solve.apply(ctx.inner, ctx.solve, r, y, *x)  # type: ignore[no-untyped-call]
    with torch.enable_grad(), told():
        y, x = _alias(y), [_alias(p) if n else p for p, n in zip(x, needed, strict=True)]
        wanted = [y] * by_y + [p for p, n in zip(x, needed, strict=True) if n]
        slope = derivatives([ctx.inner(y, *x)], [y], create_graph=True)[0]
        found = iter(derivatives([residual(slope, y)], wanted, [-u], create_graph=again))
    of_y = [next(found) for _ in range(by_y)]
    return u, *of_y, *(next(found) if n else None for n in needed)


def _alias(tensor: Tensor) -> Tensor:
    """Another node for the same tensor: derivatives in it stop there, but its graph continues."""
    other = tensor.view_as(tensor)
    try:
        return other if other.requires_grad else other.detach().requires_grad_()
    except RuntimeError as error:
        raise UserError(_INSTEAD.format("torch.func.jacrev and a vectorised jacobian")) from error


def _rows(inner: Loss, dims: Sequence[Any]) -> Loss:
    """A batch of problems is one separable problem."""

    def together(y: Tensor, *x: Tensor) -> Tensor:
        total: Tensor = vmap(inner, (0, *dims[4:]))(y, *x).sum()
        return total

    return together


def _batched(tensor: Tensor, dim: int | None, info: Any) -> Tensor:
    if dim is None:
        return tensor.expand(info.batch_size, *tensor.shape).clone()
    return tensor.movedim(dim, 0)
