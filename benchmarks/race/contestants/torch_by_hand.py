"""Plain PyTorch, closed forms by hand: two products a derivative, no graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from race.case import Array, Case


class Dense:
    def __init__(self, X: Array, labels: Array) -> None:
        self.X, self.labels = torch.from_numpy(X), torch.from_numpy(labels).long()

    def take(self, rows: Tensor) -> tuple[Any, Any, Tensor]:
        X = self.X[rows]
        return X.__matmul__, lambda R: (R.T @ X).T, self.labels[rows]

    def all(self) -> tuple[Any, Any, Tensor]:
        return self.X.__matmul__, lambda R: (R.T @ self.X).T, self.labels


class Sparse:
    """All rows in torch's CSR form with the transpose kept; scipy cuts batches."""

    def __init__(self, X: Any, labels: Array) -> None:
        self.scipy, self.labels = scipy.sparse.csr_matrix(X), torch.from_numpy(labels).long()
        self.X, self.T = to_torch(self.scipy), to_torch(self.scipy.T.tocsr())

    def take(self, rows: Tensor) -> tuple[Any, Any, Tensor]:
        X = self.scipy[rows.numpy()]
        T = X.T
        return (
            lambda W: torch.from_numpy(X @ W.numpy()),
            lambda R: torch.from_numpy(T @ R.numpy()),
            self.labels[rows],
        )

    def all(self) -> tuple[Any, Any, Tensor]:
        return self.X.__matmul__, self.T.__matmul__, self.labels


def to_torch(X: Any) -> Tensor:
    starts, columns = (torch.from_numpy(part.astype(np.int64)) for part in (X.indptr, X.indices))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Sparse CSR tensor support is in beta state"
        return torch.sparse_csr_tensor(
            starts, columns, torch.from_numpy(X.data), size=X.shape, check_invariants=False
        )


class Losses:
    def __init__(self, case: Case) -> None:
        kind = Sparse if case.sparse else Dense
        self.case = case
        self.train = kind(case.X, case.labels)
        self.validation = kind(case.V, case.validation_labels)

    def penalty(self, x: Tensor) -> Any:
        if self.case.ridge is not None:
            return 2 * self.case.ridge
        return (x.exp() * (2 / np.prod(self.case.shape)))[:, None]

    def weights(self, x: Tensor, rows: Tensor | None, n: int) -> Any:
        if self.case.ridge is None:
            return 1 / n
        return ((x if rows is None else x[rows]).sigmoid() / n)[:, None]

    def linearize(self, x: Tensor, W: Tensor, rows: Tensor | None = None) -> Linearized:
        data = self.train.all() if rows is None else self.train.take(rows)
        s = self.weights(x, rows, len(data[2]))
        return Linearized(data, s, self.penalty(x), W, self.case.ridge is not None)

    def outer(self, W: Tensor, rows: Tensor | None = None) -> Tensor:
        push, pull, labels = self.validation.all() if rows is None else self.validation.take(rows)
        E = push(W).softmax(1)
        E[torch.arange(len(E)), labels] -= 1
        found: Tensor = pull(E.div_(len(E)))
        return found


class Linearized:
    def __init__(
        self, data: tuple[Any, Any, Tensor], s: Any, c: Any, W: Tensor, weighted: bool
    ) -> None:
        (self.push, self.pull, self.labels), self.s, self.c, self.W = data, s, c, W
        self.P: Tensor = self.push(W).softmax(1)
        self.weighted = weighted

    def gradient(self) -> Tensor:
        found: Tensor = self.pull(self._errors().mul_(self.s)).add_(self.c * self.W)
        return found

    def product(self, U: Tensor) -> Tensor:
        PZ = self.P * self.push(U)
        PZ.addcmul_(self.P, PZ.sum(1, keepdim=True), value=-1).mul_(self.s)
        found: Tensor = self.pull(PZ).add_(self.c * U)
        return found

    def cross(self, U: Tensor) -> Tensor:
        """For weights: without the factor 1 − σ(x_i)."""
        if not self.weighted:
            found: Tensor = (self.c * self.W * U).sum(1)
        else:
            found = (self._errors() * self.push(U)).sum(1) * self.s[:, 0]
        return found

    def _errors(self) -> Tensor:
        E = self.P.clone()
        E[torch.arange(len(E)), self.labels] -= 1
        return E


def cross(losses: Losses, x: Tensor, at: Linearized, v: Tensor) -> Tensor:
    found = at.cross(v)
    return found * (1 - x.sigmoid()) if losses.case.ridge is not None else found


def start(case: Case) -> tuple[Losses, Tensor, Tensor]:
    return Losses(case), torch.zeros(case.x_size), torch.zeros(case.shape)


def conjugate_gradients(product: Callable[[Tensor], Tensor], b: Tensor, steps: int) -> Tensor:
    v, r = torch.zeros_like(b), b.clone()
    p, rr = r.clone(), (r * r).sum()
    for _ in range(steps):
        Hp = product(p)
        alpha = rr / (p * Hp).sum()
        v.add_(alpha * p)
        r.sub_(alpha * Hp)
        before, rr = rr, (r * r).sum()
        p.mul_(rr / before).add_(r)
    return v


def implicit(case: Case) -> Callable[[], Array]:
    losses, x, W0 = start(case)

    @torch.no_grad()
    def run() -> Array:
        W = W0.clone()
        for _ in range(case.count("D")):
            W.sub_(losses.linearize(x, W).gradient(), alpha=case.settings["alpha"])
        at = losses.linearize(x, W)
        v = conjugate_gradients(at.product, losses.outer(W), case.count("N"))
        return -cross(losses, x, at, v).numpy()

    return run


def unrolled(case: Case) -> Callable[[], Array]:
    """The reverse sweep over stored iterates."""
    losses, x, W0 = start(case)
    alpha = case.settings["alpha"]

    @torch.no_grad()
    def run() -> Array:
        path = [W0]
        for _ in range(case.count("D")):
            gradient = losses.linearize(x, path[-1]).gradient()
            path.append(path[-1].sub(gradient, alpha=alpha))
        r, h = losses.outer(path.pop()), torch.zeros_like(x)
        while path:
            at = losses.linearize(x, path.pop())
            h.sub_(cross(losses, x, at, r), alpha=alpha)
            r = r.sub(at.product(r), alpha=alpha)
        return h.numpy()

    return run


def stochastic(case: Case) -> Callable[[], Array]:
    losses, x0, W0 = start(case)
    set_to, eta = case.settings, case.settings["eta"]
    given = [{role: torch.from_numpy(found) for role, found in rows.items()} for rows in case.rows]

    @torch.no_grad()
    def run() -> Array:
        x, W = x0.clone(), W0.clone()
        for rows in given:
            for batch in rows["inner"]:
                W.sub_(losses.linearize(x, W, batch).gradient(), alpha=set_to["alpha"])
            r = losses.outer(W, rows["outer"][0])
            total = r.clone()
            for batch in rows["hessian"]:
                r.sub_(losses.linearize(x, W, batch).product(r), alpha=eta)
                total.add_(r)
            v = r * (eta * case.count("Q")) if set_to.get("truncated") else total * eta
            batch = rows["cross"][0]
            found = losses.linearize(x, W, batch).cross(v) * set_to["beta"]
            if case.ridge is None:
                x.add_(found)
            else:
                x.index_add_(0, batch, found * (1 - x[batch].sigmoid()))
        return x.numpy()

    return run
