"""Labelled rows, rows held back to stop a run in time, and a plain softmax fit.

What the ready-made tools (cleaning, penalties) share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import scipy.sparse
import scipy.special
import torch
from torch import Tensor

from bilevel.algorithms import Algorithm
from bilevel.arguments import positive_integer
from bilevel.errors import UserError, quoted
from bilevel.models.softmax.form import Penalty, SoftmaxForm
from bilevel.models.softmax.one_column import regression_problem
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.models.softmax.problem import matrix, softmax_problem
from bilevel.numerics.vectors import norm
from bilevel.oracles import Oracle
from bilevel.problem.problem import Problem
from bilevel.problem.sources import as_tensor
from bilevel.runs.minimize import minimize
from bilevel.runs.progress import Callback, Progress, StatefulCallback
from bilevel.runs.result import Result
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.cg import from_oracle

Array = np.ndarray[Any, Any]
_INNER_ACCURACY = 1e-3  # of the gradient at zero
_WORTHWHILE = 0.99  # a step that lowers the loss on held-back rows by less counts as idle


def accurate_newton(oracle: Oracle, x: Tensor, accuracy: float = _INNER_ACCURACY) -> NewtonCG:
    """Newton's method until the gradient is a small part of that at zero."""
    # Relative to the gradient at zero, so that the scale of the data does not matter.
    start = torch.zeros(oracle.y_size, dtype=oracle.dtype)
    size = norm(oracle.inner(x, start).gradient()) or 1.0
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

    def split(self, name: str, fraction: float, seed: int) -> tuple[LabelledRows, LabelledRows]:
        """The rest and a random fraction, at least one row each."""
        if not 0 < fraction < 1:
            raise ValueError(f"{name} must be a fraction between 0 and 1, got {quoted(fraction)}")
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

    def problem(self, outer: LabelledRows, form: Mapping[str, Any]) -> Problem:
        """That of learning what `form` leaves open on the outer rows."""
        return self._made_by(softmax_problem, outer, form)

    def _made_by(
        self, make: Callable[..., Problem], outer: LabelledRows, form: Mapping[str, Any]
    ) -> Problem:
        return make((self.features, self.labels), (outer.features, outer.labels), **form)

    def accuracy(self, W: Array) -> float:
        return float(((self.features @ W).argmax(1) == self.labels).mean())


class NumberedRows(LabelledRows):
    """Rows with numbers in the place of labels."""

    def take(self, which: Array) -> NumberedRows:
        return NumberedRows(self.features[which], self.labels[which])

    def losses(self, W: Array) -> Array:
        return np.asarray(np.square(self.features @ W[:, 0] - self.labels) / 2)

    def problem(self, outer: LabelledRows, form: Mapping[str, Any]) -> Problem:
        return self._made_by(regression_problem, outer, form)


class HeldBack(StatefulCallback):
    """A callback that watches the loss on rows held back, and keeps the best x and y.

    Before the first step, and after a run that diverges at once, these are the problem's own.
    """

    def __init__(self, rows: LabelledRows, patience: int, problem: Problem) -> None:
        self._rows, self._patience = rows, positive_integer("patience", patience)
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
        # Measured from the last worthwhile loss, so that many small gains count in the end.
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


class RunOptions(TypedDict, total=False):
    """What a tool hands to `bilevel.minimize` as it is."""

    callbacks: Iterable[Callback]
    checkpoint: str | Path | None
    checkpoint_every: float


@dataclass(frozen=True)
class Learned:
    """The point with the lowest loss on the rows held back.

    Args:
        x: the outer variables.
        W: (features, classes), the model at x.
        held_back_loss: after each outer step.
        result: the bilevel run.
    """

    x: Tensor
    W: Array
    held_back_loss: list[float]
    result: Result


def learn(
    train: LabelledRows,
    outer: LabelledRows,
    held: LabelledRows,
    form: Mapping[str, Any],
    algorithm: Callable[[Problem], Algorithm],
    *,
    steps: int,
    patience: int,
    seed: int,
    **options: Unpack[RunOptions],
) -> Learned:
    """Solve a problem on such rows until the rows held back gain no more.

    Args:
        train, outer, held: the rows of the inner loss, of the outer loss, and those held back.
        form: the weights, penalty and classes of the problem.
        algorithm: made for the problem.
        steps, patience: the most outer steps, and how many in a row may be idle.
        seed: of the algorithm.
        options: as for `bilevel.minimize`.
    """
    problem = train.problem(outer, form)
    watch = HeldBack(held, patience, problem)
    options["callbacks"] = [*options.get("callbacks", ()), watch]
    result = minimize(problem, algorithm(problem), steps=steps, seed=seed, **options)
    return Learned(*watch.best, watch.history, result)


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
