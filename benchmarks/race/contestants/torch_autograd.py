"""Plain PyTorch as a good user writes it: two losses, autograd, one graph for all products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy.sparse
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from race.case import Array, Case
from race.contestants.torch_by_hand import conjugate_gradients, to_torch


class Losses:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.X, self.V = _rows(case.X), _rows(case.V)
        self.labels = torch.from_numpy(case.labels).long()
        self.validation_labels = torch.from_numpy(case.validation_labels).long()

    def inner(self, x: Tensor, W: Tensor, rows: Tensor | None = None) -> Tensor:
        X, labels = self.X, self.labels
        if rows is not None:
            X, labels = self.cut(rows), labels[rows]
        losses = cross_entropy(X @ W, labels, reduction="none")
        if self.case.ridge is None:
            return losses.mean() + (x.exp()[:, None] * W.square()).sum() / W.numel()
        s = (x if rows is None else x[rows]).sigmoid()
        return (s * losses).mean() + self.case.ridge * W.square().sum()

    def outer(self, W: Tensor, rows: Tensor | None = None) -> Tensor:
        if rows is None:
            return cross_entropy(self.V @ W, self.validation_labels)
        V = self.V[rows] if not self.case.sparse else to_torch(_csr(self.case.V)[rows.numpy()])
        return cross_entropy(V @ W, self.validation_labels[rows])

    def cut(self, rows: Tensor) -> Tensor:
        if self.case.sparse:
            return to_torch(_csr(self.case.X)[rows.numpy()])
        return self.X[rows]


def _csr(X: Any) -> Any:
    return scipy.sparse.csr_matrix(X)


def _rows(X: Any) -> Tensor:
    return to_torch(_csr(X)) if scipy.sparse.issparse(X) else torch.from_numpy(X)


def start(case: Case) -> tuple[Losses, Tensor, Tensor]:
    x = torch.zeros(case.x_size, requires_grad=True)
    return Losses(case), x, torch.zeros(case.shape)


def gradient(losses: Losses, x: Tensor, W: Tensor, rows: Tensor | None = None) -> Tensor:
    W = W.detach().requires_grad_()
    return torch.autograd.grad(losses.inner(x.detach(), W, rows), W)[0]


def graph(losses: Losses, x: Tensor, W: Tensor, rows: Tensor | None) -> Tensor:
    return torch.autograd.grad(losses.inner(x, W, rows), W, create_graph=True)[0]


def implicit(case: Case) -> Callable[[], Array]:
    losses, x, W0 = start(case)

    def run() -> Array:
        W = W0
        for _ in range(case.count("D")):
            W = W - case.settings["alpha"] * gradient(losses, x, W)
        W = W.detach().requires_grad_()
        b = torch.autograd.grad(losses.outer(W), W)[0]
        G = graph(losses, x, W, None)
        v = conjugate_gradients(
            lambda U: torch.autograd.grad(G, W, U, retain_graph=True)[0], b, case.count("N")
        )
        return -torch.autograd.grad(G, x, v)[0].numpy()

    return run


def unrolled(case: Case) -> Callable[[], Array]:
    losses, x, W0 = start(case)

    def run() -> Array:
        W = W0.clone().requires_grad_()
        for _ in range(case.count("D")):
            W = W - case.settings["alpha"] * graph(losses, x, W, None)
        return torch.autograd.grad(losses.outer(W), x)[0].numpy()

    return run


def stochastic(case: Case) -> Callable[[], Array]:
    losses, x0, W0 = start(case)
    set_to, eta = case.settings, case.settings["eta"]
    given = [{role: torch.from_numpy(found) for role, found in rows.items()} for rows in case.rows]

    def run() -> Array:
        x, W = x0, W0
        for rows in given:
            for batch in rows["inner"]:
                W = W - set_to["alpha"] * gradient(losses, x, W, batch)
            W = W.detach().requires_grad_()
            r = torch.autograd.grad(losses.outer(W, rows["outer"][0]), W)[0]
            total = r
            for batch in rows["hessian"]:
                r = r - eta * torch.autograd.grad(graph(losses, x.detach(), W, batch), W, r)[0]
                total = total + r
            v = r * (eta * case.count("Q")) if set_to.get("truncated") else total * eta
            G = graph(losses, x, W, rows["cross"][0])
            h = torch.autograd.grad(G, x, v)[0]
            x = (x.detach() + set_to["beta"] * h).requires_grad_()
        return x.detach().numpy()

    return run
