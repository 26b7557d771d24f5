"""Labelled rows, rows held back to stop a run in time, and a plain softmax fit.

What the ready-made tools (cleaning, penalties) share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
import torch
from torch import Tensor

from bilevel.errors import UserError
from bilevel.models.softmax.form import Penalty, SoftmaxForm, matrix
from bilevel.numerics.vectors import norm
from bilevel.oracles import Oracle, SoftmaxOracle
from bilevel.problem.problem import Problem
from bilevel.problem.sources import as_tensor
from bilevel.runs.progress import Progress, StatefulCallback
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.cg import from_oracle

Array = np.ndarray[Any, Any]
_INNER_ACCURACY = 1e-3  # of the gradient at zero
_WORTHWHILE = 0.99  # a step that lowers the loss on held-back rows by less counts as idle


def accurate_newton(oracle: Oracle, x: Tensor, accuracy: float = _INNER_ACCURACY) -> NewtonCG:
    """Newton's method until the gradient is a small part of that at zero."""
    start = torch.zeros(oracle.y_size, dtype=oracle.dtype)
    size = norm(oracle.inner_gradient(x, start)) or 1.0
    return NewtonCG(accuracy * size, cg_steps=100, preconditioner=from_oracle)


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows: a dense array or a CSR matrix, and integers."""

    features: Any
    labels: Array

    @staticmethod
    def of(features: Any, labels: Any) -> LabelledRows:
        sparse = scipy.sparse.issparse(features)
        rows = scipy.sparse.csr_array(features) if sparse else np.asarray(features)
        numbers = np.asarray(labels)
        if numbers.shape != rows.shape[:1]:
            raise ValueError(
                f"each row needs one label, got rows of shape {rows.shape} and labels of shape "
                f"{numbers.shape}"
            )
        return LabelledRows(rows, numbers)

    def take(self, which: Array) -> LabelledRows:
        return LabelledRows(self.features[which], self.labels[which])

    def join(self, other: LabelledRows) -> LabelledRows:
        sparse = scipy.sparse.issparse(self.features)
        stack = scipy.sparse.vstack if sparse else np.concatenate
        features = stack([self.features, other.features])
        return LabelledRows(features, np.concatenate([self.labels, other.labels]))

    def split(self, fraction: float, seed: int) -> tuple[LabelledRows, LabelledRows]:
        """The rest and a random fraction, at least one row each."""
        if len(self.labels) < 2:
            raise ValueError(
                f"there must be at least 2 rows to hold one back, got {len(self.labels)}: give "
                "more (trusted) rows"
            )
        order = np.random.default_rng(seed).permutation(len(self.labels))
        held = min(max(1, round(fraction * len(order))), len(order) - 1)
        return self.take(order[held:]), self.take(order[:held])

    def losses(self, W: Array) -> Array:
        scores = self.features @ W
        given = np.take_along_axis(scores, self.labels[:, None], 1)[:, 0]
        return np.asarray(scipy.special.logsumexp(scores, axis=1) - given)

    def accuracy(self, W: Array) -> float:
        return float(((self.features @ W).argmax(1) == self.labels).mean())


class HeldBack(StatefulCallback):
    """A callback that watches the loss on rows held back, and keeps the best x and y.

    Before the first step, and after a run that diverges at once, these are the problem's own.
    """

    def __init__(self, rows: LabelledRows, patience: int, problem: Problem) -> None:
        self._rows, self._patience = rows, patience
        self._lowest, self._idle = float("inf"), 0
        self.history: list[float] = []
        x, W = problem.x_structure.unflatten(problem.x0), problem.y_structure.unflatten(problem.y0)
        self.best: tuple[Tensor, Array] = x, W.numpy()

    def __call__(self, progress: Progress) -> bool:
        W = progress.y.numpy()
        loss = float(self._rows.losses(W).mean())
        if loss < min(self.history, default=float("inf")):
            self.best = progress.x.clone(), W.copy()
        self.history.append(loss)
        gained = loss < _WORTHWHILE * self._lowest
        self._lowest = min(loss, self._lowest) if gained else self._lowest
        self._idle = 0 if gained else self._idle + 1
        return self._idle >= self._patience

    def memory(self) -> dict[str, Any]:
        x, W = self.best
        kept = {"lowest": self._lowest, "idle": self._idle, "history": list(self.history)}
        return {**kept, "patience": self._patience, "x": x, "W": torch.from_numpy(W)}

    def remember(self, memory: dict[str, Any]) -> None:
        if memory["patience"] != self._patience:
            raise UserError(
                f"the checkpoint is of another run: patience was {memory['patience']}, is "
                f"{self._patience}. Choose another folder, or delete it to begin anew."
            )
        self._lowest, self._idle = memory["lowest"], memory["idle"]
        self.history, self.best = list(memory["history"]), (memory["x"], memory["W"].numpy())


def fit_softmax(
    rows: LabelledRows,
    classes: int,
    penalty: Penalty,
    x: Tensor | None,
    start: Array,
    accuracy: float = _INNER_ACCURACY,
) -> Array:
    """The inner problem alone, at fixed penalties x."""
    features, labels = matrix(rows.features), as_tensor(rows.labels)
    form = SoftmaxForm(features, labels, features, labels, classes, None, penalty)
    oracle = SoftmaxOracle(form)
    x = torch.empty(0, dtype=features.dtype) if x is None else x
    begin = torch.as_tensor(start).reshape(-1)
    found = accurate_newton(oracle, x, accuracy).solve(oracle, x, begin, oracle.streams(0))
    return found.y.view(form.shape).numpy()
