"""L-BFGS with SciPy's line search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded when first used
import torch
from torch import Tensor

from bilevel.arguments import Count, NonNegative, Positive
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolution, InnerSolver, InnerStatus


@dataclass(frozen=True)
class LBFGS(InnerSolver):
    """Quasi-Newton steps until ‖∇y g(x, y)‖ ≤ tol, or a given fraction of its initial value.

    SciPy's L-BFGS-B without bounds, in double precision on the CPU; the gradients are computed
    in the problem's own dtype.

    Args:
        tol: stop when the norm of the gradient is at most this.
        drop: stop also when that norm is at most this fraction of its initial value; 0 never does.
        steps: the maximum number of steps.
        memory: how many pairs of differences are kept.

    Reference: Liu & Nocedal, "On the limited memory BFGS method", 1989.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> problem = halves()
        >>> found = bilevel.solve_inner(problem, problem.x0, bilevel.inner.LBFGS(tol=1e-6))
        >>> found.gradient_norm < 1e-6
        True
    """

    tol: Positive = 1e-6
    steps: Count = 1000
    memory: Count = 10
    drop: NonNegative = 0.0

    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        search = _Search(oracle, x, y)
        # Infinity is at most a fraction of infinity: an overflow at the start must not be the goal.
        first = search.gradient_norm if math.isfinite(search.gradient_norm) else 0.0
        search.goal = max(self.tol, self.drop * first)
        if search.gradient_norm <= self.tol:
            return InnerSolution(y, InnerStatus.CONVERGED, 0, search.gradient_norm)
        found = scipy.optimize.minimize(
            search.evaluate,
            search.point,
            jac=True,
            method="L-BFGS-B",
            callback=search.stop_when_small,
            options={
                "maxiter": self.steps,
                "maxfun": 10 * self.steps,
                "maxcor": self.memory,
                # SciPy would stop by the largest entry, or by the decrease of g; we use the norm.
                "gtol": 0.0,
                "ftol": 0.0,
            },
        )
        # The last point evaluated need not be the one SciPy returns.
        search.evaluate(found.x)
        if search.gradient_norm <= search.goal:
            status = InnerStatus.CONVERGED
        elif found.nit >= self.steps:
            status = InnerStatus.NOT_CONVERGED
        else:
            status = InnerStatus.STALLED
        pairs = search.tensor(found.hess_inv.sk), search.tensor(found.hess_inv.yk)
        y, size = search.tensor(found.x), search.gradient_norm
        return InnerSolution(y, status, int(found.nit), size, pairs=pairs)


class _Search:
    """Between SciPy's arrays and the oracle's tensors."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor) -> None:
        self._oracle, self._x, self._like, self.goal = oracle, x, y, 0.0
        self.point: np.ndarray[Any, Any] = y.double().cpu().numpy()
        self._seen: np.ndarray[Any, Any] | None = None
        self.evaluate(self.point)

    def tensor(self, point: np.ndarray[Any, Any]) -> Tensor:
        # A copy, as SciPy continues to use its array.
        return torch.from_numpy(point.copy()).to(self._like)

    def evaluate(self, point: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        # SciPy may ask again at its last point: that costs no second evaluation.
        if self._seen is None or not np.array_equal(point, self._seen):
            value, gradient = self._oracle.inner(self._x, self.tensor(point)).value_and_gradient()
            self._seen = point.copy()
            self._answer = float(value), gradient.double().cpu().numpy()
            self.gradient_norm = float(np.linalg.norm(self._answer[1]))
        return self._answer

    def stop_when_small(self, intermediate_result: scipy.optimize.OptimizeResult) -> None:
        if self.gradient_norm <= self.goal:
            raise StopIteration
