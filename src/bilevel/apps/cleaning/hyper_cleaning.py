"""Data hyper-cleaning: learn a weight for every row, find the wrong labels, refit without them.

    min_λ  (1/m) Σ_{trusted} ℓ(w*; a_i, b_i),   w* = argmin (1/n) Σ σ(λ_i) ℓ(w; a_i, b_i) + C_r ‖w‖²

Reference: the paper, Section 6 and its appendix on data hyper-cleaning; Shaban, Cheng, Hatch &
Boots, "Truncated back-propagation for bilevel optimization", AISTATS 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Unpack

import numpy as np
import scipy.special

from bilevel.algorithms import Algorithm, named
from bilevel.apps.holdout import (
    Array,
    LabelledRows,
    RunOptions,
    accurate_newton,
    fit_softmax,
    learn,
)
from bilevel.models.softmax.form import Ridge, SigmoidWeights
from bilevel.oracles import make
from bilevel.problem.problem import Problem
from bilevel.runs.result import Result
from bilevel.solvers.linear.cg import from_oracle
from bilevel.solvers.updates.adam import Adam

_UNLIKELY = math.log(2)  # the loss of a label with probability 1/2
_FALSE_ALARMS = 0.02  # the share of right labels that may be flagged


@dataclass(frozen=True)
class Cleaning:
    """What was learned about each row.

    Args:
        weights: σ(λ_i), what the bilevel problem made of each row.
        label_quality: the refitted model's probability of the given label; low is suspicious.
        likely_label: the refitted model's own answer.
        flagged: rows left out of the refit, as wrongly labelled: less likely than one in two,
            and than 98 % of the labels of the trusted rows held back.
        coefficients: (features, classes) of the model refitted on kept and trusted rows.
        accuracy_before: on the trusted rows held back, of the model fitted on all rows.
        accuracy_after: the same, fitted without the flagged rows.
        held_back_loss: on the trusted rows held back, after each outer step.
        result: the bilevel run.

    Example:
        >>> import torch
        >>> from bilevel.cleaning import clean
        >>> labels = torch.arange(60) % 2
        >>> rows = torch.eye(2)[labels] + 0.1 * torch.arange(60)[:, None].sin()
        >>> noisy = labels[:40].clone(); noisy[0] = 1
        >>> found = clean(rows[:40], noisy, rows[40:], labels[40:], steps=3)
        >>> found.flagged.nonzero()[0].tolist(), int(found.likely_label[0])
        ([0], 0)
    """

    weights: Array
    label_quality: Array
    likely_label: Array
    flagged: Array
    coefficients: Array
    accuracy_before: float
    accuracy_after: float
    held_back_loss: list[float]
    result: Result


def clean(
    rows: Any,
    labels: Any,
    trusted_rows: Any,
    trusted_labels: Any,
    *,
    classes: int | None = None,
    ridge: float = 1e-3,
    algorithm: Algorithm | str = "aid-bio",
    steps: int = 30,
    patience: int = 2,
    hold_back: float = 0.2,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> Cleaning:
    """Find the wrong labels among `rows` with the help of a few trusted rows.

    One part of the trusted rows is the outer loss; the rest is held back, to stop before the
    weights over-fit the first, and to measure the accuracy.

    Args:
        rows, labels: features (dense or CSR, with a column of ones if a bias is wanted) and
            labels 0, ..., classes − 1, some of them wrong.
        trusted_rows, trusted_labels: the same for rows with right labels.
        classes: how many; by default the largest label + 1.
        ridge: C_r.
        algorithm: a name of the registry (with settings fit for this problem), or an algorithm.
        steps: the most outer steps.
        patience: stop after so many steps without a better loss on the rows held back.
        hold_back: the fraction of the trusted rows that is held back.
        seed: of the split and of the algorithm.
        options: callbacks, checkpoint and checkpoint_every, as for `bilevel.minimize`.

    Example:
        >>> import torch
        >>> from bilevel.cleaning import clean
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = torch.arange(300) % 3
        >>> rows = torch.eye(3)[labels] + 0.3 * torch.randn(300, 3, generator=generator)
        >>> noisy = labels[:200].clone(); noisy[:20] = (noisy[:20] + 1) % 3
        >>> found = clean(rows[:200], noisy, rows[200:], labels[200:])
        >>> bool(found.flagged[:20].mean() > 0.9), bool(found.flagged[20:].mean() < 0.1)
        (True, True)
    """
    train = LabelledRows.of(rows, labels)
    trusted = LabelledRows.of(trusted_rows, trusted_labels)
    classes = classes or int(max(train.labels.max(), trusted.labels.max())) + 1
    outer, held = trusted.split("hold_back", hold_back, seed)
    penalty = Ridge(ridge)

    def method(problem: Problem) -> Algorithm:
        return default_algorithm(algorithm, problem) if isinstance(algorithm, str) else algorithm

    def fit(rows: LabelledRows, start: Array) -> Array:
        return fit_softmax(rows, classes, penalty, None, start)

    form = {"weights": SigmoidWeights(), "penalty": penalty, "classes": classes}
    limits = {"steps": steps, "patience": patience}
    found = learn(train, outer, held, form, method, **limits, seed=seed, **options)
    # First be strict, so that few wrong labels shape the model that judges them; then drop only
    # what is less likely than almost all trusted labels, so that few right ones are lost.
    strict = fit(train.take(train.losses(found.W) < _UNLIKELY).join(outer), found.W)
    threshold = max(_UNLIKELY, float(np.quantile(held.losses(strict), 1 - _FALSE_ALARMS)))
    flagged = train.losses(strict) > threshold
    after = fit(train.take(~flagged).join(outer), strict)
    before = fit(train.join(outer), found.W)
    final = fit(train.take(~flagged).join(trusted), after)
    probabilities = scipy.special.softmax(train.features @ final, axis=1)
    return Cleaning(
        weights=found.x.sigmoid().numpy(),
        label_quality=np.take_along_axis(probabilities, train.labels[:, None], 1)[:, 0],
        likely_label=probabilities.argmax(1),
        flagged=flagged,
        coefficients=final,
        accuracy_before=held.accuracy(before),
        accuracy_after=held.accuracy(after),
        held_back_loss=found.held_back_loss,
        result=found.result,
    )


def default_algorithm(name: str, problem: Problem) -> Algorithm:
    """An algorithm of the registry with settings fit for a softmax problem.

    Methods that take any inner solver get Newton's with a good preconditioner; methods of
    gradient steps get the step 1/L, with L ≤ ½ λ_max(X'X/n) + 2 C_r.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.cleaning import default_algorithm
        >>> rows = torch.eye(4).double(), torch.tensor([0, 1, 2, 0])
        >>> problem = bilevel.softmax_problem(rows, rows, penalty=bilevel.PerFeature())
        >>> default_algorithm("stocbio", problem).batch
        4
    """
    entry = named(name)
    known = {field.name for field in fields(entry.algorithm)}  # type: ignore[arg-type]
    oracle = make(problem)
    lr = None if problem.model is None else problem.model.good_step()
    if "preconditioner" in known:
        settings: dict[str, Any] = {
            "inner": accurate_newton(oracle, problem.x0),
            "preconditioner": from_oracle,
            "cg_steps": 50,
            "cg_tol": 1e-2,
        }
    else:
        batch = min(256, oracle.inner_rows or 1, oracle.outer_rows or 1)
        settings = {"inner_lr": lr, "neumann_lr": lr, "inner_steps": 50, "neumann_terms": 20}
        settings |= {"batch": batch, "cg_steps": 20}
    settings |= {"outer": Adam(1.0)}
    return entry.algorithm(**{key: value for key, value in settings.items() if key in known})
