"""Softmax regressions of every kind, and the size of the terms that their derivatives sum.

How equality is measured with these sizes is said in the tests of the closed-form oracle.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import scipy.sparse
import torch
from hypothesis import strategies as st
from torch import Tensor

import bilevel
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.oracles import AutogradOracle

_WEIGHTS = ("sigmoid", "fixed", "none")
_PENALTIES = (bilevel.Ridge(0.01), bilevel.PerFeature(), bilevel.PerWeight())
LEARNED = [
    pair
    for pair in itertools.product(_WEIGHTS, _PENALTIES)
    if pair[0] == "sigmoid" or not isinstance(pair[1], bilevel.Ridge)
]


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem, a point, a direction and a batch of each level."""

    problem: bilevel.Problem
    x: Tensor
    y: Tensor
    v: Tensor
    rows: Tensor | None
    outer_rows: Tensor | None

    def oracles(self) -> tuple[SoftmaxOracle, AutogradOracle]:
        return SoftmaxOracle(self.problem.model.form), AutogradOracle(self.problem)


def make_case(
    seed: int,
    shape: tuple[int, int, int, int],
    learned: tuple[str, Any],
    *,
    sparse: bool = False,
    twins: bool = False,
    bias: bool = False,
    logits: float = 1.0,
    batched: bool = False,
    dtype: type = np.float64,
) -> Case:
    (n, m, p, c), (weights, penalty) = shape, learned
    rng = np.random.default_rng(seed)
    train, validation = rng.standard_normal((n, p)), rng.standard_normal((m, p))
    labels = rng.integers(c, size=n), rng.integers(c, size=m)
    if twins:  # the same row with another label, and a row that is there three times
        train[n // 2 :] = train[0]
        validation[:] = validation[0]
    if sparse:
        train *= rng.random((n, p)) < 0.5
        train[rng.integers(n)] = 0  # an empty row
        train[:, rng.integers(p)] = 0  # a feature that no training row has
        train, validation = scipy.sparse.csr_array(train), scipy.sparse.csr_array(validation)
    fixed = rng.random(n) * (rng.random(n) < 0.7)  # some are exactly zero
    train, validation = train.astype(dtype), validation.astype(dtype)
    if bias:
        train, validation = bilevel.add_bias(train), bilevel.add_bias(validation)
    problem = bilevel.softmax_problem(
        (train, labels[0]),
        (validation, labels[1]),
        weights={"sigmoid": bilevel.SigmoidWeights(), "fixed": fixed, "none": None}[weights],
        penalty=penalty,
        classes=c,
    )

    def normal(like: Tensor, scale: float) -> Tensor:
        return torch.tensor(scale * rng.standard_normal(len(like)), dtype=like.dtype)

    def batch(size: int) -> Tensor | None:  # repeated rows are allowed
        return torch.from_numpy(rng.integers(size, size=rng.integers(1, 5))) if batched else None

    return Case(
        problem,
        normal(problem.x0, 2.0),
        normal(problem.y0, logits),
        normal(problem.y0, 1.0),
        batch(n),
        batch(m),
    )


cases = st.builds(
    make_case,
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 7), st.integers(1, 5), st.integers(1, 5), st.integers(2, 6)),
    st.sampled_from(LEARNED),
    sparse=st.booleans(),
    twins=st.booleans(),
    bias=st.booleans(),
    logits=st.sampled_from([0.0, 0.1, 1.0, 10.0, 100.0, 1000.0]),
    batched=st.booleans(),
)


def answers(oracle: Any, case: Case) -> dict[str, Tensor]:
    """Everything that an oracle can be asked, by name."""
    x, y, v, rows = case.x, case.y, case.v, case.rows
    value, gradient = oracle.inner(x, y, rows).value_and_gradient()
    around = oracle.linearize(x, y, rows)
    outer_x, outer_y = oracle.outer(x, y, case.outer_rows).gradient()
    return {
        "outer value": oracle.outer(x, y, case.outer_rows).value(),
        "outer gradient in x": outer_x,
        "outer gradient in y": outer_y,
        "inner value": oracle.inner(x, y, rows).value(),
        "inner value, with gradient": value,
        "inner gradient": oracle.inner(x, y, rows).gradient(),
        "inner gradient, with value": gradient,
        "inner gradient, linearised": around.gradient(),
        "hvp": around.hvp(v),
        "cross": around.cross(v),
    }


@dataclasses.dataclass(frozen=True)
class Parts:
    """|X|, P, Y, the row weights s over the batch size, and the penalty's coefficients."""

    X: Tensor
    P: Tensor
    Y: Tensor
    s: Tensor
    c: Tensor | float


def inner_parts(case: Case) -> Parts:
    form = case.problem.model.form
    W, rows = case.y.view(form.shape), case.rows
    X, P, Y = _predictions(form.train, form.train_labels, W, rows)
    x_weights, x_penalties = form.split(case.problem.x_structure.unflatten(case.x))
    fixed = torch.ones(len(form.train_labels)).to(W) if form.weights is None else form.weights
    s = fixed if x_weights is None else x_weights.sigmoid()
    s = (s if rows is None else s[rows])[:, None] / len(X)
    return Parts(X, P, Y, s, form.penalty.coefficients(x_penalties, W))


def _predictions(X: Tensor, labels: Tensor, W: Tensor, rows: Tensor | None) -> tuple[Tensor, ...]:
    X = X.to_dense() if X.is_sparse_csr else X
    if rows is not None:
        X, labels = X[rows], labels[rows]
    return X.abs(), (X @ W).softmax(1), torch.nn.functional.one_hot(labels, W.shape[1]).to(W)


def hvp_size(case: Case) -> Tensor:
    """The sum of the absolute values of the terms of each component of ∇²y g v."""
    of, V = inner_parts(case), case.v.view(case.problem.model.form.shape).abs()
    U = of.X @ V
    mean = (of.P * U).sum(1, keepdim=True)
    return (of.X.T @ (of.s * of.P * (U + mean)) + 2 * of.c * V).reshape(-1)


def cross_size(case: Case) -> Tensor:
    of, form = inner_parts(case), case.problem.model.form
    W, V = (flat.view(form.shape).abs() for flat in (case.y, case.v))
    x_weights, x_penalties = form.split(case.problem.x_structure.unflatten(case.x))
    found = []
    if x_weights is not None:
        rows = torch.arange(len(x_weights)) if case.rows is None else case.rows
        terms = of.s * ((of.P + of.Y) * (of.X @ V)).sum(1, keepdim=True)
        slope = terms * (1 + of.s * len(rows))  # σ' = s − s², as autograd has it
        found.append(torch.zeros_like(x_weights).index_add_(0, rows, slope[:, 0]))
    if x_penalties is not None:
        terms = 2 * of.c * W * V
        found.append(terms.reshape(-1) if x_penalties.ndim == 2 else terms.sum(1))
    return torch.cat(found)


def sizes(case: Case, truth: dict[str, Tensor]) -> dict[str, Tensor]:
    """For each answer, the sum of the absolute values of the terms that it is a sum of."""
    form, of = case.problem.model.form, inner_parts(case)
    W = case.y.view(form.shape)
    X, P, Y = _predictions(form.validation, form.validation_labels, W, case.outer_rows)
    gradient = (of.X.T @ (of.s * (of.P + of.Y)) + 2 * of.c * W.abs()).reshape(-1)
    # Values are sums of positive terms, so they are their own size.
    return {name: value.abs() for name, value in truth.items() if "value" in name} | {
        "outer gradient in x": torch.zeros_like(case.x),
        "outer gradient in y": (X.T @ (P + Y) / len(X)).reshape(-1),
        "inner gradient": gradient,
        "inner gradient, with value": gradient,
        "inner gradient, linearised": gradient,
        "hvp": hvp_size(case),
        "cross": cross_size(case),
    }
