"""Problems without rows: quadratics, ridge regression, curvature that changes on the way."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import bilevel

D = torch.float64


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=D)


def quad(p, q, kappa, seed=0, f=1.0, g=1.0, xs=1.0, offset=0.0, r=1e-3, x0=None, y0=None):
    """g = g·(½ y'Hy − y'Jx), f = f·(½‖y − d‖² + ½ r‖x‖²) + offset; x is measured in units of xs."""
    w = torch.logspace(0, -np.log10(kappa), q, dtype=D) if q > 1 else torch.ones(1, dtype=D)
    U = torch.linalg.qr(normal(q, q, seed=seed))[0]
    H = (U * w) @ U.T
    J, d = normal(q, p, seed=seed + 1), normal(q, seed=seed + 2)

    def inner(x, y):
        return g * (0.5 * y @ (H @ y) - y @ (J @ (x / xs)))

    def outer(x, y):
        return f * (0.5 * ((y - d) ** 2).sum() + 0.5 * r * (x @ x) / xs**2) + offset

    A = torch.linalg.solve(H, J)
    best = torch.linalg.solve(A.T @ A + r * torch.eye(p, dtype=D), A.T @ d)
    low = float(f * (0.5 * ((A @ best - d) ** 2).sum() + 0.5 * r * best @ best)) + offset
    start = (
        torch.zeros(p, dtype=D) if x0 is None else (best * xs + x0 if isinstance(x0, float) else x0)
    )
    begin = torch.zeros(q, dtype=D) if y0 is None else y0
    return bilevel.Problem(outer, inner, start, begin), low


def ridge_data(n=60, p=20, seed=0, scale=None, noise=1.0):
    X = normal(2 * n, p, seed=seed)
    if scale is not None:
        X = X * scale
    w = torch.zeros(p, dtype=D)
    w[: max(1, p // 4)] = 1.0
    b = (X / (1.0 if scale is None else scale)) @ w + noise * normal(2 * n, seed=seed + 1)
    return X[:n], b[:n], X[n:], b[n:]


def ridge(
    n=60,
    p=20,
    seed=0,
    offset=0.0,
    x0=0.0,
    scale=None,
    f=1.0,
    g=1.0,
    data=False,
    single=False,
    link="exp",
):
    X, b, V, c = ridge_data(n, p, seed, scale)

    def penalty(x, y):
        if link == "exp":
            return (x.exp() * y**2).sum() / p
        return ((1e-4 + 10 * x.sigmoid()) * y**2).sum() / p  # a box, by a sigmoid

    if data:

        def outer(x, y, batch):
            return f * ((batch.data[0] @ y - batch.data[1]) ** 2).mean() + offset

        def inner(x, y, batch):
            return g * (((batch.data[0] @ y - batch.data[1]) ** 2).mean() + penalty(x, y))

        kw = {"outer_data": (V, c), "inner_data": (X, b)}
    else:

        def outer(x, y):
            return f * ((V @ y - c) ** 2).mean() + offset

        def inner(x, y):
            return g * (((X @ y - b) ** 2).mean() + penalty(x, y))

        kw = {}
    size = 1 if single else p
    start = x0 if isinstance(x0, Tensor) else torch.full((size,), float(x0), dtype=D)
    return bilevel.Problem(outer, inner, start, torch.zeros(p, dtype=D), **kw)


def log_cosh(p=10, sharp=10.0, seed=0, y0=2.0, mu=0.05):
    d = normal(p, seed=seed)

    def inner(x, y):
        z = sharp * (y - x)
        return (torch.logaddexp(z, -z) - np.log(2.0)).sum() + mu * (y**2).sum()

    return bilevel.Problem(
        lambda x, y: ((y - d) ** 2).sum() + 0.01 * (x**2).sum(),
        inner,
        torch.zeros(p, dtype=D),
        torch.full((p,), y0, dtype=D),
    )


def quartic(p=5, start=3.0, ridge=0.005, seed=0):
    A = (
        torch.linalg.qr(normal(p, p, seed=seed))[0] * torch.linspace(0.5, 2, p, dtype=D)
        if p > 1
        else torch.ones(1, 1, dtype=D)
    )
    return bilevel.Problem(
        lambda x, y: ((A @ y - 1) ** 2).sum() + 0.01 * (x**2).sum(),
        lambda x, y: ((A @ (y - x)) ** 4).sum() / 4 + ridge * (y**2).sum(),
        torch.full((p,), start, dtype=D),
        torch.full((p,), start, dtype=D),
    )


def poisson(n=80, p=8, seed=0, scale=0.5):
    X = scale * normal(2 * n, p, seed=seed)
    rate = (X[:, :2].sum(1)).exp()
    b = torch.poisson(rate, generator=rng(seed + 1))
    return bilevel.Problem(
        lambda x, y: ((X[n:] @ y).exp() - b[n:] * (X[n:] @ y)).mean(),
        lambda x, y: ((X[:n] @ y).exp() - b[:n] * (X[:n] @ y)).mean() + (x.exp() * y**2).sum() / p,
        torch.zeros(p, dtype=D),
        torch.zeros(p, dtype=D),
    )


def double_well(p=3, y0=0.05, seed=0, tilt=0.1):
    d = 0.5 + 0.3 * normal(p, seed=seed)
    return bilevel.Problem(
        lambda x, y: ((y - 1 - d.abs()) ** 2).sum() + 0.01 * (x**2).sum(),
        lambda x, y: ((y**2 - 1) ** 2).sum() / 4 - ((x + tilt) * y).sum(),
        torch.zeros(p, dtype=D),
        torch.full((p,), y0, dtype=D),
    )


def singular(q=8, p=4, seed=0, inside=True):
    """H has a null direction; ∇y f lies in its range (inside) or not."""
    U = torch.linalg.qr(normal(q, q, seed=seed))[0]
    w = torch.linspace(0, 1, q, dtype=D)
    H, P = (U * w) @ U.T, U[:, 1:] @ U[:, 1:].T
    J, d = P @ normal(q, p, seed=seed + 1), normal(q, seed=seed + 2)
    M = P if inside else torch.eye(q, dtype=D)
    return bilevel.Problem(
        lambda x, y: 0.5 * ((M @ (y - d)) ** 2).sum() + 0.005 * (x**2).sum(),
        lambda x, y: 0.5 * y @ (H @ y) - y @ (J @ x),
        torch.zeros(p, dtype=D),
        torch.zeros(q, dtype=D),
    )


def network(n=60, hidden=5, seed=0, kind="ridge", x0=-3.0):
    """y: a tanh network; x: a log-ridge for each of its four blocks, or a logit for each row."""
    X = normal(2 * n, 2, seed=seed)
    t = (X[:, 0] * X[:, 1]).tanh() + 0.3 * normal(2 * n, seed=seed + 1)
    if kind == "clean":
        t[: n // 4] += 3.0
    cut = [2 * hidden, 3 * hidden, 4 * hidden, 4 * hidden + 1]

    def out(y, X):
        return (X @ y[: cut[0]].view(2, hidden) + y[cut[0] : cut[1]]).tanh() @ y[
            cut[1] : cut[2]
        ] + y[cut[2]]

    blocks = torch.tensor([0] * cut[0] + [1] * hidden + [2] * hidden + [3])
    y0 = 0.5 * normal(cut[3], seed=seed + 2)
    if kind == "ridge":

        def inner(x, y):
            return ((out(y, X[:n]) - t[:n]) ** 2).mean() + (x.exp()[blocks] * y**2).mean()

        start = torch.full((4,), x0, dtype=D)
    else:

        def inner(x, y):
            return (x.sigmoid() * (out(y, X[:n]) - t[:n]) ** 2).mean() + 0.01 * (y**2).sum()

        start = torch.zeros(n, dtype=D)
    return bilevel.Problem(lambda x, y: ((out(y, X[n:]) - t[n:]) ** 2).mean(), inner, start, y0)
