"""One penalty a feature, learned: softmax regression with thousands of hyperparameters.

    min_λ  (1/m) Σ_{validation} ℓ(w*; a_i, b_i),
    w* = argmin (1/n) Σ_{train} ℓ(w; a_i, b_i) + (1/cp) Σ_jk exp(λ_j) w_jk²

Reference: the paper, Section 6 and its appendix on logistic regression; Grazzi, Franceschi,
Pontil & Salzo, ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

from bilevel.algorithms.aid_bio import AIDBiO
from bilevel.apps.holdout import (
    Array,
    LabelledRows,
    RunOptions,
    accurate_newton,
    fit_softmax,
    learn,
)
from bilevel.models.softmax.form import PerFeature
from bilevel.oracles import make
from bilevel.problem.problem import Problem
from bilevel.runs.result import Result
from bilevel.solvers.linear.cg import from_oracle
from bilevel.solvers.updates.adam import Adam

_INNER_ACCURACY = 5e-3  # enough for the first digits of the hypergradient, and much cheaper


@dataclass(frozen=True)
class Penalties:
    """What was learned about each feature.

    Args:
        log_penalties: λ_j; a feature with a large one is nearly switched off.
        coefficients: (features, classes) of the model refitted on all rows.
        held_back_loss: on the rows held back, after each outer step.
        result: the bilevel run.

    Example:
        >>> import numpy as np
        >>> from bilevel.penalties import learn_penalties
        >>> labels = np.arange(300) % 2
        >>> features = np.random.default_rng(0).normal(size=(300, 3)); features[:, 0] += 2 * labels
        >>> found = learn_penalties(features, labels, steps=5)
        >>> found.coefficients.shape, found.held_back_loss[-1] < found.held_back_loss[0]
        ((3, 2), True)
    """

    log_penalties: Array
    coefficients: Array
    held_back_loss: list[float]
    result: Result


def learn_penalties(
    features: Any,
    labels: Any,
    *,
    classes: int | None = None,
    validation: float = 0.5,
    hold_back: float = 0.2,
    steps: int = 30,
    patience: int = 2,
    outer_lr: float = 0.3,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> Penalties:
    """Learn one L2 penalty a feature on validation rows, then refit on all rows.

    The inner problem is solved by Newton's method and the linear system by preconditioned
    conjugate gradients, both warm-started: with a μ of the order 1e-6, ten gradient steps would
    leave the hypergradient almost wholly wrong.

    Args:
        features, labels: rows (dense or CSR) and labels 0, ..., classes − 1.
        classes: how many; by default the largest label + 1.
        validation: the fraction of the rows on which the penalties are learned.
        hold_back: the fraction of those that is kept aside, to stop before over-fitting.
        steps, patience: the most outer steps, and how many may be idle.
        outer_lr: the step of outer Adam, in units of λ.
        seed: of the split.
        options: callbacks, checkpoint and checkpoint_every, as for `bilevel.minimize`.

    Example:
        >>> import numpy as np
        >>> from bilevel.penalties import learn_penalties
        >>> random = np.random.default_rng(0)
        >>> labels = np.arange(1000) % 2
        >>> features = random.normal(size=(1000, 5)); features[:, 0] += 2 * labels
        >>> found = learn_penalties(features, labels)
        >>> found.held_back_loss[-1] < found.held_back_loss[0], found.log_penalties.shape
        (True, (5,))
    """
    everything = LabelledRows.of(features, labels)
    classes = classes or int(everything.labels.max()) + 1
    train, rest = everything.split("validation", validation, seed)
    outer, held = rest.split("hold_back", hold_back, seed)
    penalty = PerFeature()

    def algorithm(problem: Problem) -> AIDBiO:
        return AIDBiO(
            inner=accurate_newton(make(problem), problem.x0, _INNER_ACCURACY),
            cg_steps=200,
            cg_tol=1e-2,
            preconditioner=from_oracle,
            outer=Adam(outer_lr),
        )

    form, limits = {"penalty": penalty, "classes": classes}, {"steps": steps, "patience": patience}
    found = learn(train, outer, held, form, algorithm, **limits, seed=seed, **options)
    W = fit_softmax(everything, classes, penalty, found.x, found.W, _INNER_ACCURACY)
    return Penalties(found.x.numpy(), W, found.held_back_loss, found.result)
