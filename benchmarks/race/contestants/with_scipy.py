"""SciPy: L-BFGS-B on closed forms in numpy, then CG."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from race.case import Array, Case
from race.contestants.ladder import first_accurate
from race.truth import Losses


def exact(case: Case) -> Callable[[], Array]:
    """The loosest tolerance on a ladder that gives 1 %, found beforehand."""
    tolerances = 10.0 ** np.arange(-3, -9, -0.5)
    return first_accurate(case, ((f"gtol {tol:.0e}", _run(case, float(tol))) for tol in tolerances))


def _run(case: Case, tol: float) -> Callable[[], Array]:
    losses, x = Losses(case, np.float32), np.zeros(case.x_size, np.float32)
    shape, size = case.shape, int(np.prod(case.shape))

    def objective(w: Array) -> tuple[float, Array]:
        W = w.reshape(shape).astype(np.float32)
        return losses.value(x, W), losses.gradient(x, W).reshape(-1).astype(np.float64)

    def run() -> Array:
        options = {"maxiter": 5000, "maxfun": 6000, "gtol": tol, "ftol": 0.0}
        found = minimize(objective, np.zeros(size), jac=True, method="L-BFGS-B", options=options)
        W = found.x.reshape(shape).astype(np.float32)
        hessian = LinearOperator(
            (size, size),
            matvec=lambda u: losses.product(x, W, u.reshape(shape)).reshape(-1),
            dtype=np.float32,
        )
        b = losses.outer(W).reshape(-1)
        v = cg(hessian, b, rtol=10 * tol, maxiter=3000)[0]
        return -losses.cross(x, W, v.reshape(shape).astype(np.float32))

    return run
