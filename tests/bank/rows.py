"""Problems of rows: classification, cleaning, and sums for methods that draw batches."""

from __future__ import annotations

import bz2
import os
from pathlib import Path

import numpy as np
import torch

import bilevel

from .smooth import D, normal, rng

IJCNN1 = Path(os.environ.get("BILEVEL_DATA", "data")) / "ijcnn1" / "ijcnn1.trn.bz2"


def classes(n, p, c, seed, scale=1.0, spread=1.5, wrong=0.0):
    centres = spread * normal(c, p, seed=seed)
    labels = torch.arange(2 * n) % c
    X = (
        centres[labels] * (torch.arange(p) < max(1, p // 2)) + normal(2 * n, p, seed=seed + 1)
    ) * scale
    given = labels.clone()
    flip = torch.rand(2 * n, generator=rng(seed + 2)) < wrong
    flip[n:] = False
    given[flip] = (given[flip] + 1) % c
    return X[:n], given[:n], X[n:], labels[n:]


def softmax(n=100, p=10, c=3, seed=0, kind="feature", scale=1.0, wrong=0.3, x0=None, ridge=0.01):
    X, a, V, b = classes(n, p, c, seed, scale, wrong=wrong, spread=0.7)
    kw = (
        {"penalty": bilevel.PerFeature()} if kind == "feature" else {"penalty": bilevel.PerWeight()}
    )
    if kind == "clean":
        kw = {"penalty": bilevel.Ridge(ridge), "weights": bilevel.SigmoidWeights()}
    shape = {"feature": (p,), "weight": (p, c), "clean": (n,)}[kind]
    start = None if x0 is None else torch.full(shape, float(x0), dtype=D)
    return bilevel.softmax_problem((X, a), (V, b), x0=start, **kw)


def logistic(X, a, V, b, link="exp", x0=0.0, mean_penalty=True):
    """Labels ±1, one log-penalty a feature, by automatic differentiation."""
    p = X.shape[1]

    def inner(x, y, batch):
        margins = batch.data[1] * (batch.data[0] @ y)
        return torch.nn.functional.softplus(-margins).mean() + (x.exp() * y**2).sum() / (
            p if mean_penalty else 1
        )

    def outer(x, y, batch):
        return torch.nn.functional.softplus(-batch.data[1] * (batch.data[0] @ y)).mean()

    return bilevel.Problem(
        outer,
        inner,
        torch.full((p,), float(x0), dtype=D),
        torch.zeros(p, dtype=D),
        outer_data=(V, b),
        inner_data=(X, a),
    )


def two_classes(n, p, seed, scale=1.0, wrong=0.1):
    X, a, V, b = classes(n, p, 2, seed, scale, 0.6, wrong)
    return X, 2.0 * a.to(D) - 1, V, 2.0 * b.to(D) - 1


def ijcnn1(n, seed=0):
    with bz2.open(IJCNN1, "rt") as file:
        lines = file.read().splitlines()
    pick = np.random.default_rng(seed).choice(len(lines), 2 * n, replace=False)
    X, a = torch.zeros(2 * n, 22, dtype=D), torch.zeros(2 * n, dtype=D)
    for i, j in enumerate(pick):
        label, *rest = lines[j].split()
        a[i] = float(label)
        for item in rest:
            k, value = item.split(":")
            X[i, int(k) - 1] = float(value)
    return X[:n], a[:n], X[n:], a[n:]


def distil(n=100, p=6, images=6, seed=0):
    """x: rows that a logistic regression is trained on; f: its loss on the real rows."""
    _, _, V, b = two_classes(n, p, seed)
    sign = torch.arange(images) % 2 * 2.0 - 1
    return bilevel.Problem(
        lambda x, y: torch.nn.functional.softplus(-b * (V @ y)).mean(),
        lambda x, y: torch.nn.functional.softplus(-sign * (x @ y)).mean() + 0.02 * (y**2).sum(),
        0.1 * normal(images, p, seed=seed + 5),
        torch.zeros(p, dtype=D),
    )


def clean_autograd(n=150, p=6, seed=0, x0=0.0, wrong=0.3):
    X, a, V, b = two_classes(n, p, seed, wrong=wrong)
    softplus = torch.nn.functional.softplus
    return bilevel.Problem(
        lambda x, y, batch: softplus(-batch.data[1] * (batch.data[0] @ y)).mean(),
        lambda x, y, batch: (
            (x[batch.index].sigmoid() * softplus(-batch.data[1] * (batch.data[0] @ y))).mean()
            + 0.01 * (y**2).sum()
        ),
        torch.full((n,), float(x0), dtype=D),
        torch.zeros(p, dtype=D),
        outer_data=(V, b),
        inner_data=(X, a),
    )


def sum_quad(n=500, p=5, q=10, kappa=10.0, noise=1.0, seed=0, x0=0.0, offset=0.0, heavy=False):
    """Least squares: g_i = ½(a_i'(y − Jx) − e_i)², f_i = ½‖y − d − u_i‖²."""
    w = torch.logspace(0, -np.log10(kappa) / 2, q, dtype=D)
    a = normal(n, q, seed=seed) * w
    e, u = noise * normal(n, seed=seed + 1), noise * normal(n, q, seed=seed + 2)
    if heavy:
        e = e / torch.rand(n, generator=rng(seed + 9), dtype=D).clamp(min=0.05)
    J, d = normal(q, p, seed=seed + 3), normal(q, seed=seed + 4)
    return bilevel.Problem(
        lambda x, y, batch: (
            0.5 * ((y - d - batch.data) ** 2).sum(-1).mean() + 0.005 * (x**2).sum() + offset
        ),
        lambda x, y, batch: (
            0.5 * ((batch.data[0] @ (y - J @ x) - batch.data[1]) ** 2).mean() + 1e-3 * (y**2).sum()
        ),
        torch.full((p,), float(x0), dtype=D),
        torch.zeros(q, dtype=D),
        outer_data=u,
        inner_data=(a, e),
    )


def sum_log_cosh(n=400, p=5, sharp=10.0, seed=0):
    shift, d = 0.3 * normal(n, p, seed=seed), normal(p, seed=seed + 1)

    def inner(x, y, batch):
        z = sharp * (y - x - batch.data)
        return torch.logaddexp(z, -z).sum(-1).mean() + 0.05 * (y**2).sum()

    return bilevel.Problem(
        lambda x, y, batch: ((y - d - batch.data) ** 2).sum(-1).mean() + 0.01 * (x**2).sum(),
        inner,
        torch.zeros(p, dtype=D),
        torch.full((p,), 2.0, dtype=D),
        outer_data=shift,
        inner_data=shift,
    )
