"""Problems as a stranger would bring them: other losses, units, shapes, precisions and sizes."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, log_softmax, softplus

import bilevel

from .smooth import D, normal, rng


def table(n, p, seed, scale=None, noise=0.5, dtype=D):
    """Rows for two halves: n to train on and n to judge on, with a third of useful columns."""
    X = normal(2 * n, p, seed=seed)
    w = normal(p, seed=seed + 1) * (torch.arange(p) < max(1, p // 3))
    t = X @ w + noise * normal(2 * n, seed=seed + 2)
    X = X if scale is None else X * scale
    return [part.to(dtype) for part in (X[:n], t[:n], X[n:], t[n:])]


def signs(t):
    return (t > 0).to(t.dtype) * 2 - 1


def by_rows(loss, penalty, data, x0, q, y0=0.0, judge=None, dtype=D):
    """g = mean loss(X y, t) + penalty(x, y), f = mean loss on the other rows."""
    X, t, V, c = data
    judge = judge or loss
    return bilevel.Problem(
        lambda x, y, batch: judge(batch.data[0] @ y, batch.data[1]).mean(),
        lambda x, y, batch: loss(batch.data[0] @ y, batch.data[1]).mean() + penalty(x, y),
        x0.to(dtype),
        torch.full((q,), float(y0), dtype=dtype),
        outer_data=(V, c),
        inner_data=(X, t),
    )


def per_feature(x, y):
    return (x.exp() * y**2).mean()


def full(size, value=0.0):
    return torch.full((size,), float(value), dtype=D)


def huber(n=300, p=15, seed=400, width=0.1, x0=-2.0):
    X, t, V, c = table(n, p, seed)
    t = t + 10 * (torch.rand(n, generator=rng(seed + 5), dtype=D) < 0.1)

    def loss(s, t):
        return width * ((1 + ((s - t) / width) ** 2).sqrt() - 1)

    return by_rows(loss, per_feature, (X, t, V, c), full(p, x0), p)


def squared_hinge(n=800, p=12, seed=410):
    X, t, V, c = table(n, p, seed, noise=2.0)
    return by_rows(
        lambda s, t: (1 - t * s).relu() ** 2,
        per_feature,
        (X, signs(t), V, signs(c)),
        full(p),
        p,
        judge=lambda s, t: softplus(-t * s),
    )


def outputs(n=200, p=12, c=5, seed=420):
    """Several outputs at once; x and y by name, with a penalty for each output and each feature."""
    X = normal(2 * n, p, seed=seed)
    T = X @ (normal(p, c, seed=seed + 1) * (torch.arange(p) < 4)[:, None])
    T = T + normal(2 * n, c, seed=seed + 2) * torch.logspace(-1, 1, c, dtype=D)

    def inner(x, y):
        fit = ((X[:n] @ y["W"] + y["b"] - T[:n]) ** 2).mean()
        return fit + ((x["feature"][:, None] + x["output"]).exp() * y["W"] ** 2).mean()

    return bilevel.Problem(
        lambda x, y: ((X[n:] @ y["W"] + y["b"] - T[n:]) ** 2).mean(),
        inner,
        {"feature": full(p, -3), "output": full(c)},
        {"W": torch.zeros(p, c, dtype=D), "b": full(c)},
    )


def gamma(n=2000, p=10, seed=430, y0=0.0):
    """A gamma regression with a log link: mean of t e^(−s) + s."""
    X, s, V, r = table(n, p, seed, noise=0.1)
    chance = torch.distributions.Gamma(torch.tensor(2.0, dtype=D), torch.tensor(2.0, dtype=D))
    torch.manual_seed(seed)
    t, c = s.clamp(-3, 3).exp() * chance.sample((n,)), r.clamp(-3, 3).exp() * chance.sample((n,))
    return by_rows(lambda s, t: t * (-s).exp() + s, per_feature, (X, t, V, c), full(p), p, y0)


def counts(n=40_000, p=12, seed=440, y0=0.0):
    """A Poisson regression."""
    X, s, V, r = table(n, p, seed, noise=0.1)
    torch.manual_seed(seed)
    t, c = torch.poisson((0.5 * s).clamp(max=3).exp()), torch.poisson((0.5 * r).clamp(max=3).exp())
    return by_rows(
        lambda s, t: s.clamp(max=40).exp() - t * s, per_feature, (X, t, V, c), full(p), p, y0
    )


def groups(n=2000, p=24, seed=450, smooth=1e-4, x0=-4.0):
    """Group lasso, smoothed: e^x_j √(‖y_j‖² + ε) over six groups."""
    X, t, V, c = table(n, p, seed, noise=2.0)

    def penalty(x, y):
        return (x.exp() * ((y.view(6, -1) ** 2).sum(1) + smooth).sqrt()).sum()

    return by_rows(
        lambda s, t: softplus(-t * s), penalty, (X, signs(t), V, signs(c)), full(6, x0), p
    )


def lasso(n=100, p=30, seed=460, smooth=1e-6):
    """One penalty for a smoothed ℓ1 norm."""
    X, t, V, c = table(n, p, seed)
    return by_rows(
        lambda s, t: (s - t) ** 2,
        lambda x, y: x.exp() * (y**2 + smooth).sqrt().sum(),
        (X, t, V, c),
        full(1, -3),
        p,
    )


def soft_labels(n=120, p=8, c=3, seed=470):
    """x: the labels themselves, as logits."""
    X, V = normal(n, p, seed=seed), normal(n, p, seed=seed + 1)
    W = normal(p, c, seed=seed + 2)
    given = (X @ W + normal(n, c, seed=seed + 3)).argmax(1)
    given[: n // 3] = (given[: n // 3] + 1) % c
    right = (V @ W).argmax(1)

    def inner(x, y):
        fit = -(x.softmax(1) * log_softmax(X @ y, 1)).sum(1).mean()
        return fit + 0.01 * (y**2).sum()

    return bilevel.Problem(
        lambda x, y: cross_entropy(V @ y, right),
        inner,
        2.0 * torch.nn.functional.one_hot(given, c).to(D),
        torch.zeros(p, c, dtype=D),
    )


def kernel(n=80, p=4, seed=480, x0=0.0):
    """Kernel ridge: x holds the log length-scales and the log ridge, y the dual coefficients."""
    X, V = normal(n, p, seed=seed), normal(n, p, seed=seed + 1)

    def signal(X):
        return (2 * X[:, 0]).sin() + 0.3 * X[:, 1]

    t, c = signal(X) + 0.1 * normal(n, seed=seed + 2), signal(V)

    def K(x, A, B):
        scale = (-x[:p]).exp()
        return (-0.5 * (((A[:, None] - B[None]) * scale) ** 2).sum(-1)).exp()

    def inner(x, y):
        return 0.5 * y @ (K(x, X, X) @ y) + 0.5 * x[p].exp() * (y @ y) - y @ t

    start = torch.cat([full(p, x0), full(1, -2)])
    return bilevel.Problem(lambda x, y: ((K(x, V, X) @ y - c) ** 2).mean(), inner, start, full(n))


def units(n=150, p=12, seed=490, low=-5, high=5):
    """Log-penalties, each measured in a unit of its own."""
    unit = torch.logspace(low, high, p, dtype=D)
    data = table(n, p, seed)
    return by_rows(
        lambda s, t: (s - t) ** 2, lambda x, y: per_feature(x / unit, y), data, full(p), p
    )


def mixed(n=150, p=10, seed=500):
    """x: a log-penalty, a shift of the labels of about 1000, and a gain of about 1e-3."""
    X, t, V, c = table(n, p, seed)

    def inner(x, y):
        return ((X @ y - (t + 1000 - x[1])) ** 2).mean() + x[0].exp() * (y**2).sum()

    def outer(x, y):
        return ((1000 * x[2] * (V @ y) - (c + x[1] - 1000)) ** 2).mean()

    return bilevel.Problem(outer, inner, torch.tensor([0.0, 900.0, 5e-4], dtype=D), full(p))


def weights(n=2000, p=5, seed=510, x0=0.0):
    """Far more x than y: a weight for every row."""
    X, t, V, c = table(n, p, seed, noise=0.2)
    t = t + 5 * (torch.arange(n) < n // 4)
    return bilevel.Problem(
        lambda x, y, batch: ((batch.data[0] @ y - batch.data[1]) ** 2).mean(),
        lambda x, y, batch: (
            (x[batch.index].sigmoid() * (batch.data[0] @ y - batch.data[1]) ** 2).mean()
            + 1e-3 * (y**2).sum()
        ),
        full(n, x0),
        full(p),
        outer_data=(V, c),
        inner_data=(X, t),
    )


def wide(q=1100, seed=520, ridge=1e-3):
    """More y than can be factorised: a chain, with two penalties."""
    t, c = normal(q, seed=seed).cumsum(0) * 0.1, normal(q, seed=seed).cumsum(0) * 0.1
    t = t + normal(q, seed=seed + 1)

    def inner(x, y):
        fit = ((y - t) ** 2).mean() + ridge * (y**2).mean()
        return fit + x[0].exp() * (y.diff() ** 2).mean() + x[1].exp() * (y.diff(n=2) ** 2).mean()

    return bilevel.Problem(lambda x, y: ((y - c) ** 2).mean(), inner, full(2), full(q))


def collinear(n=200, p=10, seed=530, apart=1e-5, ridge=1e-10):
    """Each column twice, nearly; only a tiny ridge holds the difference."""
    X, t, V, c = table(n, p, seed)
    X, V = (
        torch.cat([A, A + apart * normal(*A.shape, seed=seed + k)], 1) for k, A in ((3, X), (4, V))
    )
    return by_rows(
        lambda s, t: (s - t) ** 2,
        lambda x, y: ((x.exp() + ridge) * y**2).mean(),
        (X, t, V, c),
        full(2 * p, -4),
        2 * p,
    )


def sharp(n=60_000, p=20, seed=540, x0=-3.0, total=False):
    """Logistic regression on many rows; their sum, or their mean."""
    X, t, V, c = table(n, p, seed, noise=2.0)
    size = n if total else 1

    def loss(s, t):
        return size * softplus(-t * s)

    return by_rows(
        loss,
        lambda x, y: size * per_feature(x, y),
        (X, signs(t), V, signs(c)),
        full(p, x0),
        p,
        judge=lambda s, t: softplus(-t * s),
    )


def single(kind, n=500, p=10, seed=550, dtype=torch.float32):
    """In single precision, or the same in double precision for the truth."""
    X, t, V, c = table(n, p, seed, dtype=torch.float32, noise=1.0)
    data = [part.to(dtype) for part in (X, t, V, c)]
    if kind == "logistic":
        data = [data[0], signs(data[1]), data[2], signs(data[3])]
        return by_rows(lambda s, t: softplus(-t * s), per_feature, data, full(p), p, dtype=dtype)
    return by_rows(lambda s, t: (s - t) ** 2, per_feature, data, full(p), p, dtype=dtype)


def domains(n=3000, p=8, k=5, seed=560):
    """x: the shares of five sources of rows, of which two are like those that judge."""
    X, t, V, c = table(n, p, seed)
    source = torch.arange(n) % k
    t = t + (source >= 2) * (X @ normal(p, seed=seed + 7)) * 2
    return bilevel.Problem(
        lambda x, y, batch: ((batch.data[0] @ y - batch.data[1]) ** 2).mean(),
        lambda x, y, batch: (
            (k * x.softmax(0)[batch.data[2]] * (batch.data[0] @ y - batch.data[1]) ** 2).mean()
            + 1e-2 * (y**2).sum()
        ),
        full(k),
        full(p),
        outer_data=(V, c),
        inner_data=(X, t, source),
    )


def embedding(n=150, p=10, k=3, seed=570, size=0.1):
    """x: a linear embedding, y: a ridge regression on it. Φ has saddles."""
    X, t, V, c = table(n, p, seed, noise=0.3)
    return bilevel.Problem(
        lambda x, y: ((V @ x @ y - c) ** 2).mean(),
        lambda x, y: ((X @ x @ y - t) ** 2).mean() + 0.01 * (y**2).sum(),
        size * normal(p, k, seed=seed + 9),
        full(k),
    )


def positive(n=100, p=8, seed=580, x0=1.0, link="plain"):
    """Penalties that must stay positive, given as they are: beyond that Φ has no value."""
    data = table(n, p, seed)

    def penalty(x, y):
        return ((x if link == "plain" else x.sqrt()) * y**2).sum()

    return by_rows(lambda s, t: (s - t) ** 2, penalty, data, full(p, x0), p)


def rare(n=4000, p=30, seed=590):
    """Columns of which most rows have none: a sample of the rows may not see them."""
    X, t, V, c = table(n, p, seed, noise=1.0)
    seen = torch.logspace(0, -2.5, p, dtype=D)
    X = X * (torch.rand(n, p, generator=rng(seed + 5), dtype=D) < seen)
    V = V * (torch.rand(n, p, generator=rng(seed + 6), dtype=D) < seen)
    w = normal(p, seed=seed + 7)
    t, c = signs(X @ w + 0.5 * t), signs(V @ w + 0.5 * c)
    return by_rows(lambda s, t: softplus(-t * s), per_feature, (X, t, V, c), full(p), p)


def unlike(inner_rows, outer_rows, p=10, seed=600):
    """Many rows on one level and few on the other."""
    n = max(inner_rows, outer_rows)
    X, t, V, c = table(n, p, seed, noise=1.0)
    data = (X[:inner_rows], t[:inner_rows], V[:outer_rows], c[:outer_rows])
    return by_rows(lambda s, t: (s - t) ** 2, per_feature, data, full(p, -1), p)


def long_rows(n=2000, p=6, seed=670, times=50.0):
    """One row in fifty is far longer than the others: its curvature is missing in a sample."""
    X, t, V, c = table(n, p, seed, noise=1.0)
    X = X * torch.where(torch.rand(n, 1, generator=rng(seed + 8), dtype=D) < 0.02, times, 1.0)
    return by_rows(lambda s, t: (s - t) ** 2, per_feature, (X, t, V, c), full(p), p)


def walls(p=5, seed=680, x0=30.0):
    """g between two exponential walls that x moves: from afar each Newton step goes as far as 1."""
    d = normal(p, seed=seed)
    return bilevel.Problem(
        lambda x, y: ((y - d) ** 2).sum(),
        lambda x, y: (y - x).exp().sum() + (x - y).exp().sum() + 0.1 * (y**2).sum(),
        full(p, x0),
        full(p),
    )


def lifted(lift=1e7, seed=610):
    """A constant in g: it hides how g falls."""
    data = table(150, 10, seed)
    return by_rows(
        lambda s, t: (s - t) ** 2 + lift,
        per_feature,
        data,
        full(10, -1),
        10,
        judge=lambda s, t: (s - t) ** 2,
    )


def student(n=1000, p=4, hidden=6, seed=620):
    """A small network on rows, with a log-ridge for each layer: not convex inside."""
    X, V = normal(n, p, seed=seed), normal(n, p, seed=seed + 1)

    def signal(X):
        return (X[:, 0] * X[:, 1]).tanh() + X[:, 2]

    t, c = signal(X) + 0.3 * normal(n, seed=seed + 2), signal(V)
    size = [p * hidden, (p + 1) * hidden, (p + 2) * hidden]

    def out(y, X):
        layer = torch.tanh(X @ y[: size[0]].view(p, hidden) + y[size[0] : size[1]])
        return layer @ y[size[1] :]

    def inner(x, y, batch):
        layers = x[0].exp() * (y[: size[1]] ** 2).mean() + x[1].exp() * (y[size[1] :] ** 2).mean()
        return ((out(y, batch.data[0]) - batch.data[1]) ** 2).mean() + layers

    return bilevel.Problem(
        lambda x, y, batch: ((out(y, batch.data[0]) - batch.data[1]) ** 2).mean(),
        inner,
        full(2, -2),
        0.5 * normal(size[2], seed=seed + 4),
        outer_data=(V, c),
        inner_data=(X, t),
    )


def endless(p=3):
    """Φ falls for ever: there is nothing to converge to."""
    return bilevel.Problem(
        lambda x, y: y.sum(),
        lambda x, y: ((y - x) ** 2).sum(),
        full(p, 1.0),
        full(p),
    )


def kinked(n=200, p=6, seed=630):
    """A loss with kinks, |s − t|: outside of what is promised, but nothing may break."""
    data = table(n, p, seed)
    return by_rows(lambda s, t: (s - t).abs(), per_feature, data, full(p, -2), p)


def price(p=6, seed=640):
    """A leader sets prices, followers buy: both levels see the product."""
    a, b = normal(p, seed=seed).abs() + 1, torch.linspace(0.5, 2, p, dtype=D)
    M = torch.eye(p, dtype=D) + 0.1 * torch.ones(p, p, dtype=D)
    return bilevel.Problem(
        lambda x, y: -(x * y).sum(),
        lambda x, y: 0.5 * y @ (M @ (b * y)) / 2 + 0.5 * (b * y**2).sum() - ((a - x) * y).sum(),
        full(p),
        full(p),
    )


def interpolated(rows=6, p=12, seed=660, other=False):
    """Fewer rows than weights and no ridge: g* = 0, and H is singular; with other rows outside.

    Without those Φ* = 0.
    """
    A, t = normal(rows, p, seed=seed), normal(rows, seed=seed + 1)
    B, u = (normal(rows, p, seed=seed + 2), normal(rows, seed=seed + 3)) if other else (A, t)
    return bilevel.Problem(
        lambda x, y: ((B @ y - u) ** 2).sum(),
        lambda x, y: ((A @ y - t * x.exp()) ** 2).sum() if other else ((A @ (y - x)) ** 2).sum(),
        full(rows if other else p),
        full(p),
    )
