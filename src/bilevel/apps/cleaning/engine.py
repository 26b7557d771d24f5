"""Data hyper-cleaning: learn a weight for every row, find the wrong labels, refit without them.

    min_λ  (1/m) Σ_{trusted} ℓ(w*; a_i, b_i),   w* = argmin (1/n) Σ σ(λ_i) ℓ(w; a_i, b_i) + C_r ‖w‖²

Reference: the paper, Section 6 and its appendix on data hyper-cleaning; Shaban, Cheng, Hatch &
Boots, "Truncated back-propagation for bilevel optimization", AISTATS 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import Tensor

from bilevel.algorithms import registry
from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import Entry
from bilevel.apps.holdout import Array, HeldBack, LabelledRows, accurate_newton, fit_softmax
from bilevel.arguments import positive_integer
from bilevel.errors import UserError
from bilevel.models.softmax.design import design
from bilevel.models.softmax.form import Ridge, SigmoidWeights, softmax_problem
from bilevel.oracles import make_oracle
from bilevel.problem.problem import Problem
from bilevel.runs.minimize import Callback, minimize
from bilevel.runs.result import Result
from bilevel.solvers.linear.cg import from_oracle

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
    algorithm: DoubleLoop | str = "aid-bio",
    steps: int = 30,
    patience: int = 2,
    hold_back: float = 0.2,
    seed: int = 0,
    callbacks: Iterable[Callback] = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 60.0,
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
        callbacks, checkpoint, checkpoint_every: as for `bilevel.minimize`.

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
    positive_integer("patience", patience)
    if not 0 < hold_back < 1:
        raise ValueError(f"hold_back must be a fraction between 0 and 1, got {hold_back!r}")
    train = LabelledRows.of(rows, labels)
    trusted = LabelledRows.of(trusted_rows, trusted_labels)
    classes = classes or int(max(train.labels.max(), trusted.labels.max())) + 1
    outer, held = trusted.split(hold_back, seed)
    penalty = Ridge(ridge)
    problem = softmax_problem(
        (train.features, train.labels),
        (outer.features, outer.labels),
        weights=SigmoidWeights(),
        penalty=penalty,
        classes=classes,
    )
    method = default_algorithm(algorithm, problem) if isinstance(algorithm, str) else algorithm
    watch = HeldBack(held, patience, problem)
    result = minimize(
        problem,
        method,
        steps=steps,
        seed=seed,
        callbacks=[*callbacks, watch],
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )

    x, W = watch.best
    # First be strict, so that few wrong labels shape the model that judges them; then drop only
    # what is less likely than almost all trusted labels, so that few right ones are lost.
    strict = fit_softmax(
        train.take(train.losses(W) < _UNLIKELY).join(outer), classes, penalty, None, W
    )
    threshold = max(_UNLIKELY, float(np.quantile(held.losses(strict), 1 - _FALSE_ALARMS)))
    flagged = train.losses(strict) > threshold
    after = fit_softmax(train.take(~flagged).join(outer), classes, penalty, None, strict)
    before = fit_softmax(train.join(outer), classes, penalty, None, W)
    final = fit_softmax(train.take(~flagged).join(trusted), classes, penalty, None, after)
    probabilities = scipy.special.softmax(train.features @ final, axis=1)
    return Cleaning(
        weights=x.sigmoid().numpy(),
        label_quality=np.take_along_axis(probabilities, train.labels[:, None], 1)[:, 0],
        likely_label=probabilities.argmax(1),
        flagged=flagged,
        coefficients=final,
        accuracy_before=held.accuracy(before),
        accuracy_after=held.accuracy(after),
        held_back_loss=watch.history,
        result=result,
    )


def registered(name: str) -> Entry:
    """An algorithm of the registry.

    Raises:
        UserError: there is none of that name.

    Example:
        >>> from bilevel.cleaning import registered
        >>> registered("hoag").paper
        'Pedregosa, ICML 2016, Algorithm 1 (HOAG)'
    """
    if name not in registry():
        raise UserError(f"there is no algorithm {name!r}; there are {', '.join(registry())}")
    return registry()[name]


def default_algorithm(name: str, problem: Problem) -> DoubleLoop:
    """An algorithm of the registry with settings fit for a softmax problem.

    Methods that take any inner solver get Newton's with a good preconditioner; methods of
    gradient steps get the step 1/L, with L ≤ ½ λ_max(X'X/n) + 2 C_r.
    """
    entry = registered(name)
    known = {field.name for field in fields(entry.algorithm)}
    form = problem.closed_form
    oracle = make_oracle(problem)
    lr = 1 / (0.5 * _largest_eigenvalue(form.train) + 2 * form.penalty.strength)
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
    settings |= {"outer_optimizer": "adam", "outer_lr": 1.0}
    return entry.algorithm(**{key: value for key, value in settings.items() if key in known})


def _largest_eigenvalue(X: Tensor, steps: int = 20) -> float:
    """λ_max(X'X/n) by power iteration, with a margin of a tenth."""
    # Random, since a column and its opposite would hide from a vector of ones.
    v = torch.randn(X.shape[1], 1, dtype=X.dtype, generator=torch.Generator().manual_seed(0))
    size = 0.0
    for _ in range(steps):
        Xv = X @ (v / v.norm())
        size = float(Xv.square().sum()) / len(Xv)
        v = design(X).pull(Xv)
    return 1.1 * size
