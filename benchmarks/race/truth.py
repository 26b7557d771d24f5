"""The answers in float64: closed forms in numpy, apart from all contestants but SciPy's.

∇W g = X'[s∘(P − Y)]/n + 2c∘W,     ∇²W g·U = X'[s∘(P∘Z − P∘rowsum(P∘Z))]/n + 2c∘U,  Z = XU
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from race.case import Array, Case


class Losses:
    """g, f and their derivatives on some rows."""

    def __init__(self, case: Case, dtype: type = np.float64) -> None:
        self.case, self.X, self.V = case, case.X.astype(dtype), case.V.astype(dtype)
        self.start: Array = np.zeros(case.shape, dtype)

    def gradient(self, x: Array, W: Array, rows: Any = slice(None)) -> Array:
        X, s, P = self._at(x, W, rows)
        P[np.arange(len(P)), self.case.labels[rows]] -= 1
        found: Array = X.T @ (P * s) + self._penalty(x, W) * W
        return found

    def product(self, x: Array, W: Array, U: Array, rows: Any = slice(None)) -> Array:
        X, s, P = self._at(x, W, rows)
        PZ = P * (X @ U)
        R = (PZ - P * PZ.sum(1, keepdims=True)) * s
        found: Array = X.T @ R + self._penalty(x, W) * U
        return found

    def cross(self, x: Array, W: Array, U: Array, rows: Any = slice(None)) -> Array:
        found: Array = np.zeros_like(x)
        if self.case.ridge is None:
            found[:] = (self._penalty(x, W) * W * U).sum(1)
            return found
        X, s, P = self._at(x, W, rows)
        P[np.arange(len(P)), self.case.labels[rows]] -= 1
        slopes = ((P * (X @ U)).sum(1, keepdims=True) * s)[:, 0]
        found[rows] = slopes * (1 - _sigmoid(x[rows]))
        return found

    def outer(self, W: Array, rows: Any = slice(None)) -> Array:
        V, labels = self.V[rows], self.case.validation_labels[rows]
        P = _softmax(V @ W)
        P[np.arange(len(P)), labels] -= 1
        found: Array = V.T @ P / len(P)
        return found

    def value(self, x: Array, W: Array) -> float:
        Z = self.X @ W
        top = Z.max(1)
        log = np.log(np.exp(Z - top[:, None]).sum(1)) + top
        losses = log - Z[np.arange(len(Z)), self.case.labels]
        s = 1.0 if self.case.ridge is None else _sigmoid(x)
        return float((s * losses).mean() + (self._penalty(x, W) * W * W).sum() / 2)

    def _at(self, x: Array, W: Array, rows: Any) -> tuple[Any, Array, Array]:
        X = self.X[rows]
        n = X.shape[0]
        weights = np.ones(n) if self.case.ridge is None else _sigmoid(x[rows])
        return X, (weights / n)[:, None].astype(W.dtype), _softmax(X @ W)

    def _penalty(self, x: Array, W: Array) -> Any:
        if self.case.ridge is not None:
            return 2 * self.case.ridge
        return 2 * np.exp(x)[:, None] / W.size


def implicit(case: Case) -> Array:
    """D gradient steps, N conjugate-gradient steps, one cross product."""
    losses, x = Losses(case), np.zeros(case.x_size)
    W = descend(losses, x, case.count("D"), case.settings["alpha"])[-1]
    v = conjugate_gradients(lambda U: losses.product(x, W, U), losses.outer(W), case.count("N"), 0)
    return -losses.cross(x, W, v)


def unrolled(case: Case) -> Array:
    """The derivative of f after D gradient steps, by the reverse sweep."""
    losses, x, alpha = Losses(case), np.zeros(case.x_size), case.settings["alpha"]
    path = descend(losses, x, case.count("D"), alpha)
    r, h = losses.outer(path[-1]), np.zeros_like(x)
    for W in reversed(path[:-1]):
        h -= alpha * losses.cross(x, W, r)
        r = r - alpha * losses.product(x, W, r)
    return h


def stochastic(case: Case) -> Array:
    """x after the outer steps of stocBiO, or of BSA and TTSA (`truncated`), on the given rows."""
    losses, x, set_to = Losses(case), np.zeros(case.x_size), case.settings
    W, eta = losses.start, set_to["eta"]
    for rows in case.rows:
        for batch in rows["inner"]:
            W = W - set_to["alpha"] * losses.gradient(x, W, batch)
        r = losses.outer(W, rows["outer"][0])
        total = r.copy()
        for batch in rows["hessian"]:
            r = r - eta * losses.product(x, W, r, batch)
            total += r
        v = eta * (case.count("Q") * r if set_to.get("truncated") else total)
        x = x + set_to["beta"] * losses.cross(x, W, v, rows["cross"][0])
    return x


def exact(case: Case) -> Array:
    """∇Φ(0): Newton's method with conjugate gradients, each to many digits."""
    losses, x = Losses(case), np.zeros(case.x_size)
    W, first = losses.start, 0.0
    for _ in range(60):
        gradient = losses.gradient(x, W)
        size = float(np.linalg.norm(gradient))
        first = first or size
        if size <= 1e-9 * first:
            break
        forcing = min(0.1, (size / first) ** 0.5)
        step = conjugate_gradients(partial(losses.product, x, W), gradient, 3000, forcing)
        W = _no_higher(losses, x, W, step)
    v = conjugate_gradients(lambda U: losses.product(x, W, U), losses.outer(W), 6000, 1e-7)
    return -losses.cross(x, W, v)


def descend(losses: Losses, x: Array, steps: int, alpha: float) -> list[Array]:
    path = [losses.start]
    for _ in range(steps):
        path.append(path[-1] - alpha * losses.gradient(x, path[-1]))
    return path


def conjugate_gradients(
    product: Callable[[Array], Array], b: Array, steps: int, tol: float
) -> Array:
    v, r = np.zeros_like(b), b.copy()
    p, rr = r.copy(), float((r * r).sum())
    goal = tol**2 * rr
    for _ in range(steps):
        if rr <= goal:
            break
        Hp = product(p)
        alpha = rr / float((p * Hp).sum())
        v, r = v + alpha * p, r - alpha * Hp
        before, rr = rr, float((r * r).sum())
        p = r + (rr / before) * p
    return v


def _no_higher(losses: Losses, x: Array, W: Array, step: Array) -> Array:
    value, t = losses.value(x, W), 1.0
    while t > 1e-6 and losses.value(x, W - t * step) > value:
        t /= 2
    return W - t * step


def _softmax(Z: Array) -> Array:
    E = np.exp(Z - Z.max(1, keepdims=True))
    found: Array = E / E.sum(1, keepdims=True)
    return found


def _sigmoid(x: Array) -> Array:
    found: Array = 1 / (1 + np.exp(-x))
    return found
