"""What every contestant of a contest is given: plain numpy arrays and numbers."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse

Array = np.ndarray[Any, Any]


class InaccurateError(Exception):
    """A contestant found no right answer in time; the text says how near it came."""


class AnyCase(Protocol):
    """What the race itself asks of a case."""

    @property
    def rows(self) -> Sized:
        """As many as an answer has outer steps; none for one."""

    @property
    def truth(self) -> Array | None: ...

    def with_truth(self, truth: Array) -> AnyCase: ...


@dataclass(frozen=True)
class Case:
    """Softmax regression inside; row weights (hyper-cleaning) or penalties outside.

        g(x, W) = mean_i s_i ℓ_i(W) + R(x, W),   f(W) = mean over validation rows of ℓ_i(W)

    s_i = σ(x_i) and R = ridge ‖W‖² if `ridge` is given, else s_i = 1 and
    R = (1/cp) Σ exp(x_j) W_jk². Everyone starts from x = 0 and W = 0.

    Args:
        X, labels, V, validation_labels: training and validation rows; X and V dense or CSR.
        classes: c.
        ridge: its strength, or None for a penalty a feature.
        settings: D, alpha, N, Q, eta, beta: whichever the contest has.
        rows: row numbers by role, one entry an outer step; for the stochastic contests.
        truth: what must come out, in float64; None until it is known.
    """

    X: Any
    labels: Array
    V: Any
    validation_labels: Array
    classes: int
    ridge: float | None
    settings: dict[str, float]
    rows: list[dict[str, Array]] = field(default_factory=list)
    truth: Array | None = None

    @property
    def sparse(self) -> bool:
        return bool(scipy.sparse.issparse(self.X))

    @property
    def x_size(self) -> int:
        return int(self.X.shape[0] if self.ridge is not None else self.X.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Of W."""
        return int(self.X.shape[1]), self.classes

    def count(self, name: str) -> int:
        return int(self.settings[name])

    def with_truth(self, truth: Array) -> Case:
        return replace(self, truth=truth)


def relative_error(found: Array, truth: Array) -> float:
    """‖found − truth‖/‖truth‖, in float64."""
    difference = np.asarray(found, np.float64).reshape(-1) - truth.reshape(-1)
    return float(np.linalg.norm(difference) / np.linalg.norm(truth))
