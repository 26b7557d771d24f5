"""A zoo: problems of other fields, made after the rules and the other banks.

Problems without rows are written with whole tables; those with rows, as sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, softplus

import bilevel

from .fresh import by_rows, full, per_feature, signs, table
from .smooth import D, normal, rng

MANY = {"many": True}  # several inner solutions: Φ is what the end of a run makes it
Named = tuple[str, Callable[[], bilevel.Problem], dict[str, Any]]


def uniform(*shape: int, seed: int) -> Tensor:
    return torch.rand(*shape, generator=rng(seed), dtype=D)


def plain(outer, inner, x0, y0) -> bilevel.Problem:
    return bilevel.Problem(outer, inner, x0, y0)


def scaled(problem, f=1.0, g=1.0, offset=0.0, lift=0.0, x=1.0, y=1.0):
    """The same in other units: f·f + offset, g·g + lift, and x and y in units of their own."""
    make, inner = problem.outer, problem.inner
    return plain(
        lambda a, b: f * make(a / x, b / y) + offset,
        lambda a, b: g * inner(a / x, b / y) + lift,
        problem.x0 * x,
        problem.y0 * y,
    )


class Parts:
    """A problem before it is one, so that it can be brought into other units."""

    def __init__(self, outer, inner, x0, y0) -> None:
        self.outer, self.inner, self.x0, self.y0 = outer, inner, x0, y0

    def __call__(self, **units):
        return scaled(self, **units) if units else plain(self.outer, self.inner, self.x0, self.y0)


def cox(n=150, p=10, seed=700, x0=-2.0):
    """Survival times: Cox's partial likelihood."""
    X, s, V, r = table(n, p, seed)

    def sorted_by_time(X, s, k):
        time = -(-s).exp() * uniform(n, seed=seed + k).log()
        order = time.argsort(descending=True)
        return X[order], uniform(n, seed=seed + k + 1) < 0.7

    (X, d), (V, e) = sorted_by_time(X, s, 5), sorted_by_time(V, r, 8)

    def loss(X, d, y):
        s = X @ y
        return -((s - s.logcumsumexp(0)) * d).mean()

    return Parts(
        lambda x, y: loss(V, e, y),
        lambda x, y: loss(X, d, y) + per_feature(x, y),
        full(p, x0),
        full(p),
    )


def factors(n=15, m=12, k=2, seed=710, x0=-3.0):
    """Matrix completion: y holds both factors, with a log-ridge for each. Not convex inside."""
    M = normal(n, k, seed=seed) @ normal(k, m, seed=seed + 1) + 0.3 * normal(n, m, seed=seed + 2)
    seen = uniform(n, m, seed=seed + 3) < 0.6
    sizes = (n * k, m * k)

    def misfit(y, mask):
        U, V = y.split(sizes)
        return (mask * (U.view(n, k) @ V.view(k, m) - M) ** 2).sum() / mask.sum()

    def inner(x, y):
        U, V = y.split(sizes)
        return misfit(y, seen) + x[0].exp() * (U**2).mean() + x[1].exp() * (V**2).mean()

    return Parts(lambda x, y: misfit(y, ~seen), inner, full(2, x0), normal(sum(sizes), seed=seed))


def margin(n=120, p=4, seed=720):
    """A kernel machine with a smooth hinge; x: log-width and log-ridge."""
    X, V = normal(n, p, seed=seed), normal(n, p, seed=seed + 1)
    t, c = (signs(A[:, 0] * A[:, 1] + 0.3 * A[:, 2]) for A in (X, V))

    def K(x, A):
        return (-0.5 * x[0].exp() * ((A[:, None] - X[None]) ** 2).sum(-1)).exp()

    def inner(x, y):
        k = K(x, X)
        return (0.2 * softplus((1 - t * (k @ y)) / 0.2)).mean() + x[1].exp() * y @ (
            k @ y + 1e-3 * y
        )

    return Parts(
        lambda x, y: softplus(-c * (K(x, V) @ y)).mean(), inner, torch.zeros(2, dtype=D), full(n)
    )


def transport(n=12, seed=730, ridge=0.0):
    """Entropic transport: y, the potentials, are known up to a constant unless there is a ridge.

    x: the features' log-weights in the cost, to be found from an observed plan.
    """
    A, B = uniform(n, 3, seed=seed), uniform(n, 3, seed=seed + 1)
    parts = (A[:, None] - B[None]) ** 2
    a, b = (uniform(n, seed=seed + k).add(0.5) for k in (2, 3))
    a, b = a / a.sum(), b / b.sum()

    def logs(x, y):
        return (y[:n, None] + y[None, n:] - (parts * x.exp()).sum(-1)) / 0.1

    def inner(x, y):
        return 0.1 * logs(x, y).exp().sum() - a @ y[:n] - b @ y[n:] + ridge * (y**2).sum()

    true, y = torch.tensor([1.0, -1.0, 0.3], dtype=D), full(2 * n)
    for _ in range(2000):  # Sinkhorn
        y[:n] += 0.1 * (a.log() - logs(true, y).logsumexp(1))
        y[n:] += 0.1 * (b.log() - logs(true, y).logsumexp(0))
    plan = logs(true, y).exp()
    return Parts(
        lambda x, y: ((logs(x, y).exp() - plan) ** 2).sum() * n**2, inner, full(3), full(2 * n, -1)
    )


def conductor(cells=60, seed=740, x0=0.0, weight=1e-4):
    """An inverse problem: x, log-conductivities; y, the field that they give."""
    h = 1 / cells
    s = torch.ones(cells - 1, dtype=D)
    truth = (torch.linspace(0, 6, cells, dtype=D)).sin()

    def inner(x, y):
        u = torch.cat([y.new_zeros(1), y, y.new_zeros(1)])
        return 0.5 * (x.exp() * u.diff() ** 2).sum() / h - h * (s * y).sum()

    A = torch.diag(truth.exp()) / h
    E = torch.eye(cells + 1, dtype=D)[:, 1:-1].diff(dim=0)
    u = torch.linalg.solve(E.T @ A @ E, h * s)
    seen = u * (1 + 0.01 * normal(cells - 1, seed=seed))
    return Parts(
        lambda x, y: ((y - seen) ** 2).mean() / (u**2).mean() + weight * (x.diff() ** 2).sum(),
        inner,
        full(cells, x0),
        full(cells - 1),
    )


def deblur(n=100, seed=750, x0=-4.0):
    """Deconvolution with a learned roughness penalty for each place."""
    t = torch.linspace(-1, 1, n, dtype=D)
    B = (-((t[:, None] - t[None]) ** 2) / 0.01).exp()
    B = B / B.sum(1, keepdim=True)
    clean = torch.sign(t - 0.2) + (6 * t).sin()
    seen = B @ clean + 0.05 * normal(n, seed=seed)

    def inner(x, y):
        rough = (x.exp() * ((y.diff() ** 2) + 1e-4).sqrt()).mean()
        return ((B @ y - seen) ** 2).mean() + rough + 1e-6 * (y**2).mean()

    return Parts(lambda x, y: ((y - clean) ** 2).mean(), inner, full(n - 1, x0), full(n))


def portfolio(p=15, days=90, seed=760):
    """Weights by mean and variance; x: how much of each to trust, and the risk aversion."""
    mix = normal(p, p, seed=seed) / p**0.5
    R = 0.01 * (normal(2 * days, p, seed=seed + 1) @ mix) + 0.001 * normal(p, seed=seed + 2)
    past, future = R[:days], R[days:]
    C, m = past.T.cov(), past.mean(0)

    def inner(x, y):
        trust = x[:p].sigmoid()
        return (
            0.5 * x[p].exp() * y @ (C @ y + 1e-5 * y)
            - (trust * m) @ y
            + 0.5e-3 * (y.sum() - 1) ** 2
        )

    def outer(x, y):
        gain = future @ y
        return -gain.mean() + 5 * gain.var()

    return Parts(outer, inner, torch.cat([full(p), full(1, 2)]), full(p, 1 / p))


def instruments(n=300, p=6, q=10, seed=770):
    """Two stages: y predicts the treatment by instruments, x the outcome by that prediction."""
    Z, u = normal(n, q, seed=seed), normal(n, seed=seed + 1)
    T = Z @ normal(q, p, seed=seed + 2) + u[:, None] + normal(n, p, seed=seed + 3)
    t = T @ torch.linspace(-1, 1, p, dtype=D) + 3 * u

    def inner(x, y):
        return (
            ((Z @ y.view(q, p) - T) ** 2).mean()
            + 0.01 * (y**2).mean()
            + 0.01 * ((Z @ y.view(q, p) @ x - t) ** 2).mean()
        )

    def outer(x, y):
        return ((Z @ y.view(q, p) @ x - t) ** 2).mean() + 1e-3 * (x**2).sum()

    return Parts(outer, inner, full(p), full(p * q))


def barrier(p=4, rows=12, seed=780, mu=0.1):
    """Inverse optimisation: costs from the observed choice of a linear program with a barrier."""
    A = torch.nn.functional.normalize(normal(rows, p, seed=seed), dim=1)
    A = torch.cat([A, torch.eye(p, dtype=D), -torch.eye(p, dtype=D)])
    b = torch.ones(len(A), dtype=D)
    goal = 0.4 * torch.nn.functional.normalize(normal(p, seed=seed + 1), dim=0)

    def inner(x, y):
        return x @ y - mu * (b - A @ y).log().sum()

    return Parts(
        lambda x, y: ((y - goal) ** 2).sum() + 1e-6 * (x**2).sum(), inner, full(p), full(p)
    )


def control(horizon=40, grow=1.1, seed=790, x0=0.0):
    """A linear system steered by y; x: log-weights of the controller's own costs."""
    A = torch.tensor([[grow, 0.1, 0.0], [0.0, grow, 0.1], [0.05, 0.0, 0.9]], dtype=D)
    B = torch.tensor([0.0, 0.1, 1.0], dtype=D)

    def path(y):
        s, states = torch.tensor([1.0, -1.0, 0.5], dtype=D), []
        for u in y:
            s = A @ s + B * u
            states.append(s)
        return torch.stack(states)

    def inner(x, y):
        return (x[:3].exp() * path(y) ** 2).sum() + x[3].exp() * (y**2).sum()

    def outer(x, y):
        s = path(y)
        return 0.01 * (s[:, 0] ** 2).sum() + s[-1] @ s[-1] + 0.1 * (y**2).sum()

    return Parts(outer, inner, full(4, x0), full(horizon))


def tolls(routes=8, seed=800):
    """Traffic in equilibrium by a potential; x: tolls that keep flows below capacity."""
    free, room = uniform(routes, seed=seed) + 1, uniform(routes, seed=seed + 1) + 0.2

    def flow(y):
        return 3 * y.softmax(0)

    def inner(x, y):
        z = flow(y)
        time = free * z + 0.15 * free * z * (z / room) ** 4 / 5
        return (time + x * z + 0.3 * z * z.log()).sum() + 1e-3 * (y**2).sum()

    def outer(x, y):
        z = flow(y)
        return (free * z * (1 + 0.15 * (z / room) ** 4)).sum() + 0.01 * (x**2).sum()

    return Parts(outer, inner, full(routes), full(routes))


def fixed_point(q=20, p=5, seed=810, gain=0.8):
    """y = tanh(W y + E x) as a least-squares problem. Not convex inside."""
    W = normal(q, q, seed=seed)
    W = gain * W / torch.linalg.matrix_norm(W, 2)
    E = normal(q, p, seed=seed + 1)
    goal = normal(q, seed=seed + 2).tanh()
    return Parts(
        lambda x, y: ((y - goal) ** 2).mean() + 1e-3 * (x**2).sum(),
        lambda x, y: ((y - (W @ y + E @ x).tanh()) ** 2).sum(),
        full(p),
        full(q),
    )


def poison(n=40, p=6, seed=820):
    """x moves rows so as to spoil a ridge regression, and pays for it."""
    X, t, V, c = table(n, p, seed)
    return Parts(
        lambda x, y: -torch.log1p(((V @ y - c) ** 2).mean()) + 0.05 * (x**2).sum(),
        lambda x, y: (((X + x.view(n, p)) @ y - t) ** 2).mean() + 0.1 * (y**2).sum(),
        full(n * p),
        full(p),
    )


def groups_of_people(n=400, p=8, k=4, seed=830):
    """The worst group counts, smoothly; x: the groups' weights as logits."""
    X, t, V, c = table(n, p, seed, noise=1.0)
    group = torch.arange(n) % k
    shift = normal(k, p, seed=seed + 7)
    t, c = t + (X * shift[group]).sum(1), c + (V * shift[group]).sum(1)
    member = torch.nn.functional.one_hot(group, k).to(D)

    def losses(A, b, y):
        return member.T @ softplus(-signs(b) * (A @ y)) * k / n

    return Parts(
        lambda x, y: 0.1 * torch.logsumexp(losses(V, c, y) / 0.1, 0),
        lambda x, y: x.softmax(0) @ losses(X, t, y) + 0.01 * (y**2).sum(),
        full(k),
        full(p),
    )


def smoother(steps=150, seed=840, x0=0.0):
    """States of a series; x: the log-variances of level, slope and noise."""
    level = (0.02 * normal(steps, seed=seed).cumsum(0)).cumsum(0)
    seen = level + 0.5 * normal(steps, seed=seed + 1)
    held = torch.arange(steps) % 5 == 0

    def inner(x, y):
        u, slope = y.view(2, steps)
        fit = (~held * (u - seen) ** 2).sum() * (-x[2]).exp()
        move = ((u.diff() - slope[:-1]) ** 2).sum() * (-x[0]).exp()
        return fit + move + (slope.diff() ** 2).sum() * (-x[1]).exp() + 1e-3 * (y**2).sum()

    return Parts(
        lambda x, y: (held * (y[:steps] - seen) ** 2).sum() / held.sum() + 1e-4 * (x**2).sum(),
        inner,
        full(3, x0),
        full(2 * steps),
    )


def matches(players=25, games=300, seed=850):
    """Who beats whom: strengths y, an advantage at home and a log-ridge x."""
    i, j = (torch.randint(players, (2 * games,), generator=rng(seed + k)) for k in (0, 1))
    power = normal(players, seed=seed + 2)
    won = signs(power[i] - power[j] + 0.5 - uniform(2 * games, seed=seed + 3).logit())
    a, b = slice(games), slice(games, None)

    def loss(x, y, at):
        return -logsigmoid(won[at] * (y[i[at]] - y[j[at]] + x[1])).mean()

    return Parts(
        lambda x, y: loss(x, y, b),
        lambda x, y: loss(x, y, a) + x[0].exp() * (y**2).mean(),
        full(2),
        full(players),
    )


def probit(n=200, p=10, seed=860, x0=0.0):
    """Probit regression."""
    X, t, V, c = table(n, p, seed, noise=2.0)

    def loss(s, t):
        return -torch.special.log_ndtr(t * s)

    return by_rows(loss, per_feature, (X, signs(t), V, signs(c)), full(p, x0), p)


def ordinal(n=300, p=8, seed=870):
    """Five ordered classes: y holds weights and four cuts, by steps that are positive."""
    X, t, V, c = table(n, p, seed, noise=1.0)
    edges = torch.tensor([-2.0, -0.5, 0.5, 2.0], dtype=D)
    k, m = torch.bucketize(t, edges), torch.bucketize(c, edges)

    def loss(A, k, y):
        cuts = torch.cat([y[p : p + 1], y[p : p + 1] + softplus(y[p + 1 :]).cumsum(0)])
        below = torch.sigmoid(cuts - (A @ y[:p])[:, None])
        below = torch.cat([below.new_zeros(len(A), 1), below, below.new_ones(len(A), 1)], 1)
        return -(below.diff(dim=1).gather(1, k[:, None]) + 1e-12).log().mean()

    return Parts(
        lambda x, y: loss(V, m, y),
        lambda x, y: loss(X, k, y) + per_feature(x, y[:p]) + 1e-3 * (y[p:] ** 2).sum(),
        full(p),
        full(p + 4),
    )


def quantile(n=500, p=6, seed=880):
    """A smoothed quantile regression as a sum; x: the level as a logit, and a log-ridge."""
    X, t, V, c = table(n, p, seed)

    def loss(r, level):
        return level * r + 0.1 * softplus(-r / 0.1)

    return bilevel.Problem(
        lambda x, y, batch: loss(batch.data[1] - batch.data[0] @ y, 0.9).mean(),
        lambda x, y, batch: (
            loss(batch.data[1] - batch.data[0] @ y, x[0].sigmoid()).mean()
            + x[1].exp() * (y**2).sum()
        ),
        full(2),
        full(p),
        outer_data=(V, c + 1),
        inner_data=(X, t),
    )


def tasks(k=6, n=20, p=8, seed=890):
    """Regressions of several tasks, tied by a learned matrix x between them."""
    base = normal(p, 2, seed=seed) @ normal(2, k, seed=seed + 1)
    X, V = normal(k, n, p, seed=seed + 2), normal(k, 3 * n, p, seed=seed + 3)
    t = torch.einsum("knp,pk->kn", X, base) + 2 * normal(k, n, seed=seed + 4)
    c = torch.einsum("knp,pk->kn", V, base)

    def inner(x, y):
        W, L = y.view(p, k), x.view(k, k)
        tie = ((W @ L) ** 2).mean() + 1e-2 * (W**2).mean()
        return ((torch.einsum("knp,pk->kn", X, W) - t) ** 2).mean() + tie

    return Parts(
        lambda x, y: ((torch.einsum("knp,pk->kn", V, y.view(p, k)) - c) ** 2).mean(),
        inner,
        torch.eye(k, dtype=D).flatten(),
        full(p * k),
    )


def prior(k=12, n=6, p=20, seed=900, y0=0.0):
    """Meta-learning: x, a common start and how far tasks may go from it; y, all tasks' weights."""
    centre = normal(p, seed=seed)
    truths = centre + 0.3 * normal(k, p, seed=seed + 1)
    X, V = normal(k, n, p, seed=seed + 2), normal(k, n, p, seed=seed + 3)
    t = torch.einsum("knp,kp->kn", X, truths) + 0.1 * normal(k, n, seed=seed + 4)
    c = torch.einsum("knp,kp->kn", V, truths)

    def inner(x, y):
        W = y.view(k, p)
        fit = ((torch.einsum("knp,kp->kn", X, W) - t) ** 2).sum()
        return fit + x[p].exp() * ((W - x[:p]) ** 2).sum()

    return Parts(
        lambda x, y: ((torch.einsum("knp,kp->kn", V, y.view(k, p)) - c) ** 2).mean(),
        inner,
        full(p + 1),
        full(k * p, y0),
    )


def maxent(q=12, seed=910):
    """An exponential family on a grid: y, its parameters; x, log-ridges."""
    grid = torch.linspace(-1, 1, 200, dtype=D)
    T = torch.stack([grid**k for k in range(1, q + 1)], 1)
    density = 8 * torch.sin(5 * grid) * grid - grid
    draws = [
        torch.multinomial(density.softmax(0), 60, True, generator=rng(seed + k)) for k in (0, 1)
    ]
    mean, later = (T[d].mean(0) for d in draws)

    def loss(y, m):
        return (T @ y).logsumexp(0) - m @ y

    return Parts(
        lambda x, y: loss(y, later),
        lambda x, y: loss(y, mean) + (x.exp() * y**2).sum(),
        full(q, -2),
        full(q),
    )


def knots(n=80, k=7, seed=920):
    """A spline whose knots x may move. Φ has several minima."""
    t = torch.linspace(0, 1, n, dtype=D)
    target = (t - 0.37).abs() + (9 * t).sin() * (t > 0.6)
    noisy = target + 0.1 * normal(n, seed=seed)

    def basis(x):
        return torch.cat(
            [t[:, None] ** torch.arange(2), 0.02 * softplus((t[:, None] - x) / 0.02)], 1
        )

    return Parts(
        lambda x, y: ((basis(x) @ y - target) ** 2).mean(),
        lambda x, y: ((basis(x) @ y - noisy) ** 2).mean() + 1e-5 * (y**2).sum(),
        torch.linspace(0.1, 0.9, k, dtype=D),
        full(k + 2),
    )


def cauchy(n=150, p=6, seed=930, x0=0.0):
    """A robust loss that is not convex, with its width learned."""
    X, t, V, c = table(n, p, seed)
    t = t + 20 * (uniform(n, seed=seed + 5) < 0.2)

    def inner(x, y):
        width = x[0].exp()
        loss = width**2 * torch.log1p((X @ y - t) ** 2 / width**2).mean()
        return loss + x[1].exp() * (y**2).sum() + 0.05 * (y**2).sum()

    return Parts(lambda x, y: ((V @ y - c) ** 2).mean(), inner, full(2, x0), full(p))


def calibrated(n=600, p=10, c=4, seed=940):
    """Softmax regression on rows; x: label smoothing, temperature and ridge."""
    X, V = normal(n, p, seed=seed), normal(n, p, seed=seed + 1)
    W = normal(p, c, seed=seed + 2)
    t = (X @ W + 4 * normal(n, c, seed=seed + 3)).argmax(1)
    u = (V @ W + 4 * normal(n, c, seed=seed + 4)).argmax(1)

    def inner(x, y, batch):
        rows, labels = batch.data
        mix = 0.5 * x[0].sigmoid()
        logits = rows @ y
        fit = (1 - mix) * cross_entropy(logits, labels) - mix * logits.log_softmax(1).mean()
        return fit + x[1].exp() * (y**2).sum()

    return bilevel.Problem(
        lambda x, y, batch: cross_entropy(batch.data[0] @ y * x[2].exp(), batch.data[1]),
        inner,
        torch.tensor([-3.0, -6.0, 0.5], dtype=D),
        torch.zeros(p, c, dtype=D),
        outer_data=(V, u),
        inner_data=(X, t),
    )


def layers(n=800, p=6, hidden=40, seed=950, dtype=D):
    """x: a hidden layer; y: a ridge regression on it, on rows."""
    X, V = (normal(n, p, seed=seed + k).to(dtype) for k in (0, 1))

    def signal(A):
        return (2 * A[:, 0]).sin() * A[:, 1] + A[:, 2].abs()

    t = signal(X) + 0.1 * normal(n, seed=seed + 2).to(dtype)

    def misfit(x, y, batch):
        return ((torch.tanh(batch.data[0] @ x["W"] + x["b"]) @ y - batch.data[1]) ** 2).mean()

    return bilevel.Problem(
        misfit,
        lambda x, y, batch: misfit(x, y, batch) + 1e-3 * (y**2).sum(),
        {
            "W": normal(p, hidden, seed=seed + 3).to(dtype),
            "b": normal(hidden, seed=seed + 4).to(dtype),
        },
        torch.zeros(hidden, dtype=dtype),
        outer_data=(V, signal(V)),
        inner_data=(X, t),
    )


def places(n=120, m=10, seed=960):
    """Kernel ridge on m points whose places x are learned."""
    X, V = 3 * uniform(n, 2, seed=seed), 3 * uniform(n, 2, seed=seed + 1)

    def signal(A):
        return (2 * A[:, 0]).sin() + (3 * A[:, 1]).cos()

    t, c = signal(X) + 0.1 * normal(n, seed=seed + 2), signal(V)

    def K(x, A):
        return (-2 * ((A[:, None] - x.view(1, m, 2)) ** 2).sum(-1)).exp()

    return Parts(
        lambda x, y: ((K(x, V) @ y - c) ** 2).mean(),
        lambda x, y: ((K(x, X) @ y - t) ** 2).mean() + 1e-4 * (y**2).sum(),
        3 * uniform(2 * m, seed=seed + 3),
        full(m),
    )


def valley(p=2, kind="rosenbrock", x0=-1.2, bend=1.0):
    """Φ is known: what is hard is outside. y = x, bent."""

    def level(y):
        if kind == "rosenbrock":
            return (100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2).sum()
        if kind == "heavy tails":
            return torch.log1p(((y - 1) ** 2).sum())
        if kind == "flat":
            return ((y - 1) ** 4).sum()
        if kind == "waves":
            return (1 - (3 * y).cos() + 0.1 * y**2).sum()
        if kind == "cliff":
            return ((5 * y).exp() - 5 * y).sum()
        assert kind == "saddle"
        return ((y**2 - 1) ** 2).sum()

    return Parts(
        lambda x, y: level(y),
        lambda x, y: (
            ((bend * (y - x) + (y - x) ** 3) ** 2).sum() / 2
            if bend != 1
            else ((y - x) ** 2).sum() + ((y - x) ** 4).sum()
        ),
        full(p, x0),
        full(p),
    )


def stretched(p=10, q=10, spread=8.0, seed=970):
    """Each entry of y in a unit of its own: H spans 10^-2·spread to 10^2·spread."""
    unit = torch.logspace(-spread, spread, q, dtype=D)
    J, d = normal(q, p, seed=seed), normal(q, seed=seed + 1)
    M = torch.eye(q, dtype=D) + 0.3 * torch.ones(q, q, dtype=D)
    return Parts(
        lambda x, y: ((y / unit - d) ** 2).sum() + 1e-3 * (x**2).sum(),
        lambda x, y: 0.5 * (y / unit) @ (M @ (y / unit)) - (y / unit) @ (J @ x),
        full(p),
        full(q),
    )


def many_unknowns(q=1200, p=10, kappa=1e4, seed=980):
    """A diagonal H, hidden by a reflection, of more unknowns than are factorised."""
    w = torch.logspace(0, -math.log10(kappa), q, dtype=D)
    a = torch.nn.functional.normalize(normal(q, seed=seed), dim=0)
    J, d = normal(q, p, seed=seed + 1), normal(q, seed=seed + 2)

    def turned(y):
        return y - 2 * a * (a @ y)

    def outer(x, y):
        return ((y - d) ** 2).mean() + 1e-3 * (x**2).sum()

    parts = Parts(
        outer, lambda x, y: 0.5 * (w * turned(y) ** 2).sum() - y @ (J @ x), full(p), full(q)
    )
    A = torch.stack([turned(turned(j) / w) for j in J.T], 1)
    x = torch.linalg.solve(A.T @ A / q + 1e-3 * torch.eye(p, dtype=D), A.T @ d / q)
    return parts, float(outer(x, A @ x))


def heavy_rows(n=100_000, p=8, seed=990, x0=0.0):
    """Least squares on many rows with heavy tails."""
    X, t, V, c = table(n, p, seed)
    tails = [uniform(n, seed=seed + k).pow(-0.3)[:, None] for k in (7, 8)]
    return by_rows(
        lambda s, t: (1 + (s - t) ** 2).sqrt() - 1,
        per_feature,
        (X * tails[0], t, V * tails[1], c),
        full(p, x0),
        p,
    )


def counts_with_exposure(n=3000, p=8, seed=1000):
    """Poisson regression with exposures of 1 to 1e5."""
    X, s, V, r = table(n, p, seed, noise=0.1)
    e, h = (10 ** (5 * uniform(n, seed=seed + k)) for k in (5, 6))
    torch.manual_seed(seed)
    t, c = torch.poisson(e * (0.3 * s).exp() * 0.01), torch.poisson(h * (0.3 * r).exp() * 0.01)

    def loss(y, batch):
        A, k, e = batch.data
        s = (A @ y[:p] + y[p]).clamp(max=30)
        return (e * s.exp() - k * s).mean() / 100

    return bilevel.Problem(
        lambda x, y, batch: loss(y, batch),
        lambda x, y, batch: loss(y, batch) + per_feature(x, y[:p]),
        full(p),
        full(p + 1),
        outer_data=(V, c, h),
        inner_data=(X, t, e),
    )


def separable(n=60, p=5, seed=1010, x0=-12.0):
    """Classes without overlap and next to no ridge: y* is long, and H nearly flat there."""
    X, t, V, c = table(n, p, seed, noise=0.0)
    flip = signs(uniform(n, seed=seed + 3) - 0.1)
    return Parts(
        lambda x, y: softplus(-signs(c) * flip * (V @ y)).mean(),
        lambda x, y: softplus(-signs(t) * (X @ y)).mean() + x[0].exp() * (y**2).sum(),
        full(1, x0),
        full(p),
    )


def one_penalty(x0, n=50, p=30, seed=1020):
    """One log-penalty from far: x0 = ±20 is a plateau."""
    X, t, V, c = table(n, p, seed, noise=1.0)
    return Parts(
        lambda x, y: ((V @ y - c) ** 2).mean(),
        lambda x, y: ((X @ y - t) ** 2).mean() + x[0].exp() * (y**2).sum(),
        full(1, x0),
        full(p),
    )


def positive_parts(n=60, p=10, seed=1030):
    """Weights that must not be negative, y = z², with log-penalties. Not convex inside."""
    X, t, V, c = table(n, p, seed)
    return Parts(
        lambda x, y: ((V @ y**2 - c) ** 2).mean(),
        lambda x, y: ((X @ y**2 - t) ** 2).mean() + (x.exp() * y**2).mean(),
        full(p, -1),
        full(p, 0.7),
    )


def covariance(p=6, n=20, seed=1040):
    """A precision matrix by its Cholesky factor, with a learned penalty for each entry."""
    root = torch.eye(p, dtype=D) + torch.diag(full(p - 1, 0.6), -1)
    draws = normal(2 * n, p, seed=seed) @ torch.linalg.inv(root).T
    S, R = draws[:n].T.cov(), draws[n:].T.cov()
    i, j = torch.tril_indices(p, p, -1)

    def factor(y):
        L = torch.diag(y[:p].exp())
        return L.index_put((i, j), y[p:])

    def loss(y, S):
        L = factor(y)
        return ((L @ L.T) * S).sum() - 2 * y[:p].sum()

    def inner(x, y):
        return loss(y, S) + (x.exp() * (y[p:] ** 2 + 1e-4).sqrt()).sum()

    return Parts(lambda x, y: loss(y, R), inner, full(len(i), -2), full(p + len(i)))


def clusters(n=120, k=3, seed=1050):
    """A mixture of normals by its likelihood; x: log-width and the pull to zero."""
    means = torch.tensor([[-2.0, 0.0], [2.0, 1.0], [0.0, -2.0]], dtype=D)
    A, B = (
        means[torch.randint(k, (n,), generator=rng(seed + j))] + 0.7 * normal(n, 2, seed=seed + j)
        for j in (2, 4)
    )

    def loss(A, x, y):
        d = ((A[:, None] - y.view(1, k, 2)) ** 2).sum(-1)
        return -(-0.5 * d * (-2 * x[0]).exp() - 2 * x[0]).logsumexp(1).mean()

    return Parts(
        lambda x, y: loss(B, x, y),
        lambda x, y: loss(A, x, y) + x[1].exp() * (y**2).sum(),
        torch.tensor([0.5, -4.0], dtype=D),
        normal(2 * k, seed=seed + 6),
    )


def augmented(n=500, p=20, seed=1060):
    """Dropout of each column by its own rate, in closed form: a ridge that the data weigh."""
    X, t, V, c = table(n, p, seed, noise=2.0)
    return bilevel.Problem(
        lambda x, y, batch: ((batch.data[0] @ y - batch.data[1]) ** 2).mean(),
        lambda x, y, batch: (
            ((batch.data[0] @ y - batch.data[1]) ** 2).mean()
            + ((x.sigmoid() / (-x).sigmoid()) * y**2 * (batch.data[0] ** 2).mean(0)).sum()
        ),
        full(p, -4),
        full(p),
        outer_data=(V, c),
        inner_data=(X, t),
    )


def two_sizes(inside, outside, p=15, seed=1070):
    """Logistic regression, with very different numbers of rows on the two levels."""
    n = max(inside, outside)
    X, t, V, c = table(n, p, seed, noise=2.0)
    data = X[:inside], signs(t[:inside]), V[:outside], signs(c[:outside])
    return by_rows(lambda s, t: softplus(-t * s), per_feature, data, full(p, -3), p)


def shares(n=1200, k=12, seed=1080, start=0.0):
    """A mixture of experts' forecasts in x, by a softmax, and its bias and gain in y, on rows."""
    signal = normal(n, seed=seed)
    E = signal[:, None] + torch.linspace(0.2, 3, k, dtype=D) * normal(n, k, seed=seed + 1)
    x0 = torch.cat([full(k - 1), full(1, start)])
    return bilevel.Problem(
        lambda x, y, batch: (
            (batch.data[0] @ x.softmax(0) * y[0] + y[1] - batch.data[1]) ** 2
        ).mean(),
        lambda x, y, batch: (
            ((batch.data[0] @ x.softmax(0) * y[0] + y[1] - batch.data[1]) ** 2).mean()
            + 1e-3 * (y**2).sum()
        ),
        x0,
        full(2),
        outer_data=(E[: n // 2], signal[: n // 2]),
        inner_data=(E[n // 2 :], signal[n // 2 :]),
    )


def many_weights(n=20_000, p=10, k=400, seed=1090):
    """A learned weight for each of k sources of rows, a third of which are spoilt."""
    X, t, V, c = table(n, p, seed)
    source = torch.arange(n) % k
    t = torch.where(source < k // 3, -t, t)
    return bilevel.Problem(
        lambda x, y, batch: softplus(-signs(batch.data[1]) * (batch.data[0] @ y)).mean(),
        lambda x, y, batch: (
            (
                x.sigmoid()[batch.data[2]] * softplus(-signs(batch.data[1]) * (batch.data[0] @ y))
            ).mean()
            + 1e-2 * (y**2).sum()
        ),
        full(k),
        full(p),
        outer_data=(V, c),
        inner_data=(X, t, source),
    )


def single(seed=1100, n=200, p=8, dtype=torch.float32, offset=0.0, size=1.0):
    """Elastic penalties, in single precision."""
    data = table(n, p, seed, dtype=dtype)

    def penalty(x, y):
        return x[0].exp() * (y**2 + 1e-4).sqrt().sum() + x[1].exp() * (y**2).sum()

    def loss(s, t):
        return size * (s - t) ** 2 + offset

    return by_rows(loss, lambda x, y: size * penalty(x, y), data, full(2, -3), p, dtype=dtype)


def all_of_them() -> Iterator[Named]:
    """Those at even places are for choosing, those at odd places for judging."""
    yield "cox", cox(), {}
    yield "cox/x0=4", cox(seed=701, x0=4.0), {}
    yield "factors", factors(), MANY
    yield "factors/x0=0", factors(seed=711, x0=0.0), MANY
    yield "margin", margin(), {}
    yield "transport", transport(), {}
    yield "transport/ridge", transport(seed=731, ridge=1e-6), {}
    yield "conductor", conductor(), {}
    yield "conductor/x0=3", conductor(seed=741, x0=3.0), {}
    yield "deblur", deblur(), {}
    yield "portfolio", portfolio(), {}
    yield "portfolio/1e-8", lambda: portfolio(seed=761)(f=1e-8, g=1e-8), {}
    yield "instruments", instruments(), {}
    yield "instruments/units", lambda: instruments(seed=771)(x=1e6, y=1e-6, g=1e6), {}
    yield "barrier", barrier(), {}
    yield "barrier/tight", barrier(seed=781, mu=1e-3), {}
    yield "control", control(), {}
    yield "control/unstable", control(grow=1.3, x0=-3.0), {}
    yield "tolls", tolls(), MANY
    yield "fixed point", fixed_point(), MANY
    yield "poison", poison(), {}
    yield "worst group", groups_of_people(), {}
    yield "smoother", smoother(), {}
    yield "smoother/x0=5", smoother(seed=841, x0=5.0), {}
    yield "matches", matches(), {}
    yield "matches/f+1e8", lambda: matches(seed=851)(offset=1e8), {}
    yield "probit", probit, {}
    yield "probit/x0=-9", lambda: probit(seed=861, x0=-9.0), {}
    yield "ordinal", ordinal(), MANY
    yield "quantile", quantile, {}
    yield "tasks", tasks(), {}
    yield "tasks/g+1e8", lambda: tasks(seed=891)(lift=1e8), {}
    yield "prior", prior(), {}
    yield "prior/y0=1e3", prior(seed=901, y0=1e3), {}
    yield "maxent", maxent(), {}
    yield "maxent/x 1e8", lambda: maxent(seed=911)(x=1e8), {}
    yield "knots", knots(), {}
    yield "cauchy", cauchy(), MANY
    yield "cauchy/x0=-4", cauchy(seed=931, x0=-4.0), MANY
    yield "calibrated", calibrated, {}
    yield "layers", layers, {}
    yield "layers/wide", lambda: layers(n=500, p=10, hidden=180, seed=951), {}
    yield "places", places(), {}
    yield "valley", valley(), {"best": 0.0}
    yield "valley/p10", valley(10), {"best": 0.0}
    yield "valley/p1100", valley(1100, "flat", 3.0), {"best": 0.0}
    yield "valley/heavy tails", valley(5, "heavy tails", 1e3), {"best": 0.0}
    yield "valley/waves", valley(3, "waves", 4.0), {"best": 0.0}
    yield "valley/cliff", valley(4, "cliff", 3.0), {"best": 4.0}
    yield "valley/saddle", valley(4, "saddle", 1e-9), {"best": 0.0}
    yield "valley/flat", valley(6, "flat", 50.0, bend=0.1), {"best": 0.0}
    yield "stretched", stretched(), {}
    hard, low = many_unknowns()
    yield "many unknowns", hard, {"best": low}
    easier, least = many_unknowns(p=3, kappa=100.0, seed=981)
    yield "many unknowns/f*1e-6", lambda: easier(f=1e-6), {"best": 1e-6 * least}
    yield "heavy rows", heavy_rows, {}
    yield "heavy rows/x0=6", lambda: heavy_rows(n=30_000, seed=991, x0=6.0), {}
    yield "exposure", counts_with_exposure, {}
    yield "separable", separable(), {}
    yield "separable/x0=-25", separable(seed=1011, x0=-25.0), {}
    yield "one penalty/20", one_penalty(20.0), {}
    yield "one penalty/-20", one_penalty(-20.0, seed=1021), {}
    yield "one penalty/8", one_penalty(8.0, seed=1022), {}
    yield "positive parts", positive_parts(), MANY
    yield "covariance", covariance(), MANY
    yield "clusters", clusters(), MANY
    yield "augmented", augmented, {}
    yield "two sizes/many inside", lambda: two_sizes(60_000, 400), {}
    yield "two sizes/many outside", lambda: two_sizes(500, 60_000, seed=1071), {}
    yield "shares", shares, {}
    yield "shares/x0=12", lambda: shares(seed=1081, start=12.0), {}
    yield "many weights", many_weights, {}
    yield "float32", partial(single), {"twin": partial(single, dtype=D)}
    yield (
        "float32/f*1e6,f+1e4",
        partial(single, seed=1101, size=1e6, offset=1e4),
        {"twin": partial(single, seed=1101, size=1e6, offset=1e4, dtype=D)},
    )
    yield (
        "float32/n20000",
        partial(single, seed=1102, n=20_000),
        {"twin": partial(single, seed=1102, n=20_000, dtype=D)},
    )
