"""Φ and ∇Φ of small problems by dense linear algebra, and SciPy's L-BFGS-B on them."""

from __future__ import annotations

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

import bilevel
from bilevel.oracles import make


def spectrum(H: Tensor):
    """Eigenvalues and -vectors of SHS, and S, which makes its diagonal one."""
    s = H.diagonal().abs().clamp(min=float(H.diagonal().abs().max()) * 1e-200 or 1.0).rsqrt()
    w, U = torch.linalg.eigh(s[:, None] * H * s)
    return w, U, s


def truth(problem: bilevel.Problem, x: Tensor, y: Tensor, oracle=None, steps: int = 100):
    """Φ, ∇Φ, y*: Newton with the dense Hessian, its eigenvalues made positive."""
    oracle = oracle or make(problem)
    q = len(y)
    eye = torch.eye(q, dtype=y.dtype)

    def hessian(y):
        lin = oracle.linearize(x, y)
        H = torch.stack([lin.hvp(e) for e in eye])
        return lin, lin.gradient(), (H + H.T) / 2

    value = float(oracle.inner(x, y).value())
    last = np.inf
    for _ in range(steps):
        lin, g, H = hessian(y)
        if not bool(H.isfinite().all()):
            return np.inf, torch.full_like(x, np.nan), y
        w, U, s = spectrum(H)
        size = float(g.norm())
        small = 1e-13 * w.abs().max().clamp(min=1e-300)
        d = -s * (U @ ((U.T @ (s * g)) / w.abs().clamp(min=small)))
        slope = float(g @ d)
        if size == 0 or not np.isfinite(value) or -slope <= 1e-20 * abs(value):
            break
        if -slope <= 1e-13 * abs(value) and size >= 0.5 * last:
            break
        last, t = size, 1.0
        while True:
            there = float(oracle.inner(x, y + t * d).value())
            if there <= value + 1e-4 * t * slope + 1e-14 * abs(value):
                break
            t /= 2
            if t < 1e-12:
                break
        if t < 1e-12:
            break
        y, value = y + t * d, there
    lin, g, H = hessian(y)
    if not bool(H.isfinite().all()):
        return np.inf, torch.full_like(x, np.nan), y
    fx, fy = oracle.outer(x, y).gradient()
    w, U, s = spectrum(H)
    scaled, info = torch.linalg.cholesky_ex(s[:, None] * H * s)
    if int(info) == 0:  # exact beside penalties of any size, where small eigenvalues are not
        v = s * torch.cholesky_solve((s * fy)[:, None], scaled)[:, 0]
    else:
        keep = w.abs() > 1e-14 * w.abs().max()
        inverse = torch.where(keep, 1 / torch.where(keep, w, torch.ones_like(w)), w * 0)
        v = s * (U @ (inverse * (U.T @ (s * fy))))
    return float(oracle.outer(x, y).value()), oracle.pull(x, fx - lin.cross(v)), y


def lbfgs(problem, maxiter=400, x0=None, gtol=0.0):
    """(Φ, x, evaluations, trace of (evaluations, Φ)) of SciPy's L-BFGS-B on true hypergradients."""
    oracle = make(problem)
    y, trace = [problem.y0.clone()], []

    def evaluate(z):
        x = torch.from_numpy(z.copy()).to(problem.dtype)
        value, h, y_new = truth(problem, x, y[0], oracle)
        if np.isfinite(value):
            y[0] = y_new
        else:
            value, h = 1e300, torch.zeros_like(h)
        trace.append(value)
        return value, torch.nan_to_num(h).double().numpy()

    start = (problem.x0 if x0 is None else x0).double().numpy()
    found = scipy.optimize.minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": maxiter,
            "maxfun": 2 * maxiter,
            "ftol": 0.0,
            "gtol": gtol,
            "maxcor": 20,
        },
    )
    return (
        float(found.fun),
        torch.from_numpy(found.x).to(problem.dtype),
        len(trace),
        np.minimum.accumulate(trace),
    )
