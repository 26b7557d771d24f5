"""Conjugate gradients (Hestenes & Stiefel, 1952), with an optional diagonal preconditioner."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from bilevel.arguments import Natural, NonNegative
from bilevel.errors import quoted
from bilevel.numerics.large_pages import copy_of, empty_like
from bilevel.numerics.vectors import dot, norm
from bilevel.oracles.prices import Cost
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver, LinearStatus

Apply = Callable[[Tensor], Tensor]


def _near(name: str, value: Any) -> None:
    if not (isinstance(value, Tensor) or callable(value)):
        raise ValueError(
            f"{name} must be a tensor, a function of the Hessian, or None; got {quoted(value)}"
        )


Preconditioner = Annotated[Tensor | Callable[[Hessian], Tensor | Apply], _near]


def jacobi(hessian: Hessian) -> Tensor:
    """The Hessian's own diagonal, for `CG(preconditioner=jacobi)`.

    Example:
        >>> import torch
        >>> from bilevel.linear import CG, MatrixHessian, jacobi
        >>> H = MatrixHessian(torch.diag(torch.tensor([1.0, 1000.0]).double()))
        >>> CG(steps=1, preconditioner=jacobi).solve(H, torch.ones(2).double()).v
        tensor([1.0000, 0.0010], dtype=torch.float64)
    """
    return hessian.diagonal()


def from_oracle(hessian: Hessian) -> Apply:
    """The best approximate inverse that the oracle offers, for `CG(preconditioner=from_oracle)`.

    For dense softmax regression that is a factorised Gram matrix: on MNIST it takes CG from
    over 60 steps to about 12. For sparse data it is the diagonal.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.linear import CG, from_oracle
        >>> rows = torch.eye(3).double(), torch.tensor([0, 1, 2])
        >>> problem = bilevel.softmax_problem(rows, rows, penalty=bilevel.PerFeature())
        >>> method = bilevel.AID(CG(steps=20, preconditioner=from_oracle))
        >>> bilevel.hypergradient(problem, problem.x0, problem.y0, method).residual < 1e-12
        True
    """
    return hessian.inverse()


def if_known(hessian: Hessian) -> Apply:
    """`from_oracle` if the oracle offers an approximate inverse, otherwise none.

    Example:
        >>> import bilevel
        >>> from bilevel.linear import CG, if_known
        >>> from bilevel.problem.examples import means
        >>> method = bilevel.AID(CG(steps=20, preconditioner=if_known))
        >>> problem = means()  # which knows no inverse: plain CG
        >>> bilevel.hypergradient(problem, problem.x0, problem.y0, method).residual < 1e-12
        True
    """
    try:
        return hessian.inverse()
    except NotImplementedError:
        return _identity


# How this differs from a textbook CG:
# - a zero right-hand side and a start at the solution return at once, without 0/0;
# - a start at zero needs no product for its residual, a warm start needs one;
# - it returns the last iterate, and the residual of that iterate;
# - it ends at the residual that rounding allows, even with tol = 0: below that level the
#   recursion only adds noise;
# - p'Hp <= 0 means that H is not positive definite: it stops there and reports it.
@dataclass(frozen=True)
class CG(LinearSolver):
    """At most `steps` conjugate-gradient steps, until ‖b − H v‖ ≤ tol ‖b‖.

    After N steps from v0 the error in the H-norm is at most
    2 ((√κ − 1)/(√κ + 1))^N times that of v0.

    Args:
        steps: N, the maximum number of steps.
        tol: relative tolerance; 0 takes all the steps.
        preconditioner: the diagonal of a matrix near H, as a positive tensor, or a function
            of the Hessian that gives such a diagonal or an approximate inverse:
            `bilevel.linear.jacobi`, `bilevel.linear.from_oracle`.

    Example:
        >>> import torch
        >>> from bilevel.linear import CG, MatrixHessian
        >>> H = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
        >>> solution = CG(steps=2, tol=0.0).solve(MatrixHessian(H), torch.tensor([3.0, 4.0]))
        >>> solution.v, str(solution.status)
        (tensor([1.0000, 1.0000]), 'converged')

    Reference: the paper, Algorithm 1, AID, steps 1) and 2).
    """

    steps: Natural = 20
    tol: NonNegative = 0.0
    preconditioner: Preconditioner | None = None

    def price(self, warm: bool) -> Cost:
        # The residual of a warm start costs one product.
        return Cost(hv=None if self.tol else self.steps + warm)

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        scale = norm(b)
        if not math.isfinite(scale):  # y has diverged: show it in v, before a preconditioner fails
            lost = torch.full_like(b, float("nan"))
            return LinearSolution(lost, LinearStatus.NOT_CONVERGED, 0, scale)
        precondition = inverse(self.preconditioner, hessian, b)
        if scale == 0:  # from a warm start, CG would chase zero down to underflow
            return LinearSolution(torch.zeros_like(b), LinearStatus.CONVERGED, 0, 0.0)
        # Relative to ‖b‖, and never below rounding, where the recursion would only add noise.
        goal = scale * max(self.tol, torch.finfo(b.dtype).eps)
        step, residual = 0, scale
        iterates = conjugate_gradients(hessian.product, b, v0, precondition)
        for step, (v, residual, _) in enumerate(iterates):
            if residual <= goal:
                return LinearSolution(v, LinearStatus.CONVERGED, step, residual)
            if step == self.steps:
                asked = self.tol > 0
                status = LinearStatus.NOT_CONVERGED if asked else LinearStatus.STEP_LIMIT
                return LinearSolution(v, status, step, residual)
        return LinearSolution(v, LinearStatus.NEGATIVE_CURVATURE, step, residual)


def inverse(given: Preconditioner | None, hessian: Hessian, b: Tensor) -> Apply:
    """How a preconditioner acts on a residual of the system H v = b."""
    if given is None:
        return _identity
    near = given if isinstance(given, Tensor) else given(hessian)
    if isinstance(near, Tensor):
        return _divide_by(near, b)
    if not callable(near):
        raise TypeError(
            "a preconditioner that is a function of the Hessian must give a diagonal, as a tensor, "
            f"or a function of a vector; it gave {quoted(near)}"
        )
    return near


def conjugate_gradients(
    product: Apply,
    b: Tensor,
    v0: Tensor | None,
    precondition: Apply,
    flat: float = math.inf,
) -> Iterator[tuple[Tensor, float, float]]:
    """v, ‖b − H v‖ and ‖last step‖²_H after 0, 1, 2, ... steps from v0 (zero if None).

    ‖v* − v‖²_H is the sum of ‖step‖²_H over the steps to come. It ends only if p'Hp ≤ 0, or if
    a step is more than `flat` times the shortest, in units of p: there the curvature is smaller
    by that factor; or if nothing of the residual is left to a preconditioner that leaves flat
    directions out; or if without a preconditioner the residual grows as it can only where b has a
    part along flat directions: then v is zero. v is overwritten by the next step: copy it to keep
    it.
    """
    v = empty_like(b).zero_() if v0 is None else copy_of(v0)
    r = copy_of(b) if v0 is None else b - product(v0)
    rr = first = dot(r, r)
    yield v, math.sqrt(rr), 0.0
    z = precondition(r)
    # p is overwritten below, and z may be r. Without a preconditioner r'z is r'r.
    p, rz = copy_of(z), rr if z is r else dot(r, z)
    shortest = math.inf
    while True:
        Hp = product(p)
        curvature = dot(p, Hp)
        if not (curvature > 0 and rz > 0):  # nor if a product is NaN: more steps would not help
            return
        alpha = rz / curvature
        shortest = min(shortest, alpha)
        if alpha > flat * shortest:
            return
        # By recursion: b − H v itself would cost a second product in each step.
        r.sub_(Hp, alpha=alpha)
        rr = dot(r, r)
        if z is r and rr > flat * first:
            v.zero_()
            return
        v.add_(p, alpha=alpha)
        yield v, math.sqrt(rr), rz * alpha
        z = precondition(r)
        rz_before, rz = rz, rr if z is r else dot(r, z)
        # In place: one pass over long vectors, and no allocation.
        torch.add(z, p, alpha=rz / rz_before, out=p)


def _identity(r: Tensor) -> Tensor:
    return r


def _divide_by(diagonal: Tensor, b: Tensor) -> Apply:
    if diagonal.shape != b.shape:
        raise ValueError(
            f"the preconditioner has shape {tuple(diagonal.shape)}, the system {tuple(b.shape)}"
        )
    if not bool((diagonal > 0).all()):
        raise ValueError(f"the preconditioner must be positive; its minimum is {diagonal.min()}")
    inverse = diagonal.reciprocal()
    return lambda r: r * inverse
