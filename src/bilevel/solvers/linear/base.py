"""Linear systems H v = b, where H = ∇²y g(x, y) is symmetric and positive definite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor

from bilevel.arguments import Checked
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.measured import Measured


class Hessian(ABC):
    """H as a solver sees it: products on all rows, or on fresh batches.

    Example:
        >>> import torch
        >>> from bilevel.linear import Hessian, MatrixHessian
        >>> H = MatrixHessian(torch.tensor([[2.0, 1.0], [1.0, 3.0]]).double())
        >>> isinstance(H, Hessian), H.diagonal().tolist()
        (True, [2.0, 3.0])
        >>> H.product(torch.ones(2).double()).tolist()
        [3.0, 4.0]
    """

    size: int
    streams: Streams  # the random choices that a solver may make

    @abstractmethod
    def product(self, v: Tensor) -> Tensor:
        """H v on all rows."""

    def term(self, v: Tensor) -> Tensor:
        """H v on all rows for one term of a series; random losses draw again for each term."""
        return self.product(v)

    def matrix(self, like: Tensor) -> Tensor:
        """H itself, row by row."""
        unit = torch.eye(self.size, dtype=like.dtype, device=like.device)
        return torch.stack([self.product(e) for e in unit])

    @abstractmethod
    def sampled_product(self, v: Tensor, batch: int | None) -> Tensor:
        """H(B) v on a fresh batch B of this many rows, independent of all others."""

    def contract(self, r: Tensor, sizes: Sequence[int | None], lr: float) -> tuple[Tensor, Tensor]:
        """Apply I − η H(B) to r, for a fresh batch B of each size in turn; also returns Σ_i r_i."""
        total = r.clone()
        for size in sizes:
            r = r.sub(self.sampled_product(r, size), alpha=lr)
            total.add_(r)
        return r, total

    @abstractmethod
    def rate(self, measured: Measured) -> float:
        """A measured step size, as a number."""

    def diagonal(self) -> Tensor:
        """The diagonal of H."""
        raise NotImplementedError("the Hessian's diagonal is not known: use no preconditioner")

    def inverse(self) -> Callable[[Tensor], Tensor]:
        """A cheap approximation of v ↦ H⁻¹ v."""
        raise NotImplementedError("no inverse of the Hessian is known: use no preconditioner")


class MatrixHessian(Hessian):
    """H given as a matrix, or as the mean of a stack of matrices, from which batches are drawn.

    Example:
        >>> import torch
        >>> from bilevel.linear import CG, MatrixHessian
        >>> CG(steps=2, tol=0.0).solve(MatrixHessian(torch.eye(2) * 4), torch.ones(2)).v
        tensor([0.2500, 0.2500])
    """

    def __init__(self, matrix: Tensor, seed: int = 0, step: int = 0) -> None:
        self._stack = matrix if matrix.ndim == 3 else matrix[None]
        self._mean = self._stack.mean(0)
        self.size = self._mean.shape[0]
        # A single matrix has no rows to draw from: every batch is the whole of it.
        rows = len(self._stack) if matrix.ndim == 3 else None
        self.streams = Streams(seed, step, rows, rows)

    def product(self, v: Tensor) -> Tensor:
        return self._mean @ v

    def sampled_product(self, v: Tensor, batch: int | None) -> Tensor:
        rows = self.streams.rows("hessian", batch)
        return self.product(v) if rows is None else self._stack[rows].mean(0) @ v

    def rate(self, measured: Measured) -> float:
        return measured.of(self.product, self._mean[0])

    def diagonal(self) -> Tensor:
        return self._mean.diagonal()

    def inverse(self) -> Callable[[Tensor], Tensor]:
        return lambda v: v / self.diagonal()


class LinearStatus(StrEnum):
    """How a linear solve ended."""

    CONVERGED = "converged"
    STEP_LIMIT = "step_limit"  # success, when no tolerance was asked for
    NOT_CONVERGED = "not_converged"
    NEGATIVE_CURVATURE = "negative_curvature"
    TOO_SHORT = "too_short"  # ITD's sweep, which leaves much of its right-hand side


@dataclass(frozen=True)
class LinearSolution:
    """v, and how it was found.

    Args:
        v: the approximate solution of H v = b.
        status: how the solve ended.
        steps: the steps (or terms) that were taken.
        residual: ‖b − H v‖ if the method knows it for free, else None.

    Example:
        >>> import torch
        >>> from bilevel.linear import CG, MatrixHessian
        >>> H = MatrixHessian(torch.diag(torch.tensor([1.0, 9.0]).double()))
        >>> found = CG(steps=1, tol=1e-6).solve(H, torch.ones(2).double())
        >>> str(found.status), found.steps
        ('not_converged', 1)
    """

    v: Tensor
    status: LinearStatus = LinearStatus.STEP_LIMIT
    steps: int = 0
    residual: float | None = None


class LinearSolver(Checked, ABC):
    """A way to solve H v = b.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.linear import LinearSolution, LinearSolver, LinearStatus, MatrixHessian
        >>> class Diagonal(LinearSolver):
        ...     def solve(self, hessian, b, v0=None):
        ...         return LinearSolution(b / hessian.diagonal(), LinearStatus.STEP_LIMIT, 0, None)
        >>> Diagonal().solve(MatrixHessian(4 * torch.eye(2)), torch.ones(2)).v
        tensor([0.2500, 0.2500])
    """

    such_as = "bilevel.linear.CG(steps=20)"
    converges = True  # whether enough steps or terms give the solution

    @abstractmethod
    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        """Solve H v = b from v0 (zero if None)."""

    @property
    def samples(self) -> bool:
        """Whether it draws batches, so that its answer is noisy."""
        return getattr(self, "batch", None) is not None

    def price(self, warm: bool) -> Cost:
        """What a solve costs, from a v0 or from zero; None if a tolerance or chance decides."""
        return Cost(hv=None)


class SeriesPlan(NamedTuple):
    """See `bilevel.oracles.plans.Series`, with the sizes of its batches in place of their rows."""

    sizes: Sequence[int | None]
    lr: float
    scale: float
    summed: bool


class SeriesSolver(LinearSolver):
    """One that multiplies b by I − ηH(B) repeatedly, each time on a fresh batch B.

    Args:
        batch: the rows of a batch, before any scaling; None means all rows.
    """

    batch: int | None

    @abstractmethod
    def plan(self, streams: Streams, rate: Callable[[Measured], float]) -> SeriesPlan:
        """What it will do; `rate` measures a step size."""

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        # A series starts from b: v0 is not used.
        sizes, lr, scale, summed = self.plan(hessian.streams, hessian.rate)
        last, total = hessian.contract(b, sizes, lr)
        return LinearSolution((total if summed else last) * scale, steps=len(sizes))
