"""Least squares with a weight for every row, learned on trusted rows: gross errors in numbers.

min_λ  (1/2m) Σ_{trusted} (a_i'w* − b_i)²,   w* = argmin (1/2n) Σ σ(λ_i) (a_i'w − b_i)² + r ‖w‖²
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevel.algorithms.aid_bio import AIDBiO
from bilevel.apps.holdout import Array, NumberedRows, accurate_newton, learn
from bilevel.models.softmax.form import Ridge, SigmoidWeights
from bilevel.oracles import make
from bilevel.problem.problem import Problem
from bilevel.solvers.linear.cg import from_oracle
from bilevel.solvers.updates.adam import Adam

_TRIMS = 20
_GROSS = 4.0  # standard deviations of the trusted rows' errors
_NORMAL = 1.4826  # the median of |error| of a normal distribution as its standard deviation


@dataclass(frozen=True)
class WeightedRows:
    """What was learned of each row.

    Args:
        weights: σ(λ_i); 1 for trusted rows.
        flagged: whose error is more than four times that of trusted rows.
        coefficients: refitted without the flagged rows.
        held_back_loss: after each outer step.
    """

    weights: Array
    flagged: Array
    coefficients: Array
    held_back_loss: list[float]


def weigh_rows(
    features: Array,
    numbers: Array,
    trusted: Array,
    *,
    ridge: float = 1e-3,
    steps: int = 30,
    patience: int = 2,
    hold_back: float = 0.2,
    seed: int = 0,
) -> WeightedRows:
    """Weigh the rows that are not trusted, and find those with gross errors.

    Args:
        features: rows with a column of ones; dense.
        numbers: to predict, of a spread near one.
        trusted: a mask; the others may have wrong numbers.
        ridge: r.
        steps, patience: the most outer steps, and how many may be idle.
        hold_back: the part of the trusted rows by which the run is stopped.
        seed: of the split.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> A = np.c_[random.normal(size=(200, 2)), np.ones(200)]
        >>> b = A @ [1.0, -1.0, 0.0] + 0.1 * random.normal(size=200)
        >>> b[:20] += 5
        >>> found = weigh_rows(A, b, np.arange(200) >= 160)
        >>> bool(found.flagged[:20].all()), bool(found.flagged[20:].mean() < 0.02)
        (True, True)
    """
    everything = NumberedRows(features, numbers)
    good, doubtful = everything.take(trusted), everything.take(~trusted)
    outer, held = good.split("hold_back", hold_back, seed)

    def algorithm(problem: Problem) -> AIDBiO:
        newton = accurate_newton(make(problem), problem.x0)
        adjoint: dict[str, Any] = {"cg_steps": 50, "cg_tol": 1e-2, "preconditioner": from_oracle}
        return AIDBiO(inner=newton, outer=Adam(1.0), **adjoint)

    found = learn(
        doubtful,
        outer,
        held,
        {"weights": SigmoidWeights(), "penalty": Ridge(ridge)},
        algorithm,
        steps=steps,
        patience=patience,
        seed=seed,
    )
    weights = np.ones(len(numbers))
    weights[~trusted] = found.x.sigmoid().numpy()
    W = least_squares(features, numbers, weights, ridge)
    errors = np.abs(features @ W - numbers)
    usual = max(_NORMAL * float(np.median(errors[trusted])), float(np.finfo(errors.dtype).eps))
    flagged = ~trusted & (errors > _GROSS * usual)
    W = least_squares(features, numbers, np.where(flagged, 0.0, 1.0), ridge)
    return WeightedRows(weights, flagged, W, found.held_back_loss)


def best_half(features: Array, numbers: Array, ridge: float) -> Array:
    """The half of the rows that one linear model fits best, by least trimmed squares.

    Reference: Rousseeuw & Van Driessen, "Computing LTS regression for large data sets", 2006.
    """
    kept = np.ones(len(numbers), dtype=bool)
    for _ in range(_TRIMS):
        errors = np.abs(features @ least_squares(features, numbers, kept, ridge) - numbers)
        nearest = np.argsort(errors, kind="stable")[: (len(numbers) + 1) // 2]
        chosen = np.isin(np.arange(len(numbers)), nearest)
        if np.array_equal(chosen, kept):
            break
        kept = chosen
    return kept


def least_squares(features: Array, numbers: Array, weights: Array, ridge: float) -> Array:
    """argmin (1/2n) Σ s_i (a_i'w − b_i)² + r ‖w‖²."""
    weighted = features * np.asarray(weights, features.dtype)[:, None]
    H = features.T @ weighted / len(numbers) + 2 * ridge * np.eye(features.shape[1])
    return np.asarray(np.linalg.solve(H, weighted.T @ numbers / len(numbers)))
