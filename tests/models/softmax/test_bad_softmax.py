"""Wrong softmax regressions raise, with the value that is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import bilevel
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.oracles import AutogradOracle

from ...truth.raised_errors import assert_raises, claims

_ROWS, _LABELS = torch.arange(12.0).view(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])
_NAN = float("nan")


def softmax(
    rows: Any = _ROWS, labels: Any = _LABELS, validation: Any = (_ROWS, _LABELS), **arguments: Any
) -> bilevel.Problem:
    arguments = {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.Ridge(0.1)} | arguments
    return bilevel.softmax_problem((rows, labels), validation, **arguments)


def penalised(weights: Any) -> bilevel.Problem:
    return softmax(weights=weights, penalty=bilevel.PerFeature())


@claims(
    (
        "labels as floats",
        lambda: softmax(labels=_LABELS.float()),
        ValueError,
        "train labels must be 6 integers … torch.float32",
    ),
    (
        "labels below zero",
        lambda: softmax(labels=_LABELS - 1),
        ValueError,
        "train labels must be 6 integers from 0 … from -1",
    ),
    (
        "too few labels",
        lambda: softmax(validation=(_ROWS, _LABELS[:5])),
        ValueError,
        r"validation labels must be 6 integers … one per row … shape \(5,\)",
    ),
    (
        "a label beyond the classes",
        lambda: softmax(classes=1),
        ValueError,
        "label 1, but only 1 classes: … more classes",
    ),
    ("no classes", lambda: softmax(classes=0), ValueError, "classes must be an integer … got 0"),
    (
        "half a class",
        lambda: softmax(classes=2.5),
        ValueError,
        "classes must be an integer … got 2.5",
    ),
    (
        "no rows",
        lambda: softmax(_ROWS[:0], _LABELS[:0]),
        ValueError,
        r"train\[0\] has no rows: give at least one",
    ),
    (
        "data that are no pair",
        lambda: softmax(validation=_ROWS),
        TypeError,
        r"validation must be a pair \(features, labels\), got Tensor",
    ),
    (
        "features with a NaN",
        lambda: softmax(torch.full((6, 2), _NAN)),
        ValueError,
        r"train\[0\] holds 12 values that are NaN or infinite: clean",
    ),
    (
        "integer features",
        lambda: softmax(_ROWS.long()),
        ValueError,
        r"train features must be a floating-point matrix … shape \(6, 2\) of torch.int64",
    ),
    (
        "integer sparse features",
        lambda: softmax(scipy.sparse.csr_array(np.eye(6, 2, dtype=np.int64))),
        ValueError,
        "train features must be a floating-point matrix … torch.int64",
    ),
    (
        "another sparse layout",
        lambda: softmax(_ROWS.to_sparse()),
        ValueError,
        r"train\[0\] has layout torch.sparse_coo … to_sparse_csr",
    ),
    (
        "features of one row",
        lambda: softmax(_ROWS[0]),
        ValueError,
        r"train features must be a … matrix with one row per sample, got shape \(2,\)",
    ),
    (
        "other validation features",
        lambda: softmax(validation=(_ROWS[:, :1], _LABELS)),
        ValueError,
        r"train rows are \(6, 2\) … validation rows \(6, 1\) … must agree",
    ),
    (
        "validation of another dtype",
        lambda: softmax(validation=(_ROWS.double(), _LABELS)),
        ValueError,
        "train rows … torch.float32 … validation rows … torch.float64 … must agree",
    ),
    (
        "negative weights",
        lambda: penalised(-torch.ones(6)),
        ValueError,
        "weights must be 6 finite numbers of at least 0 … from -1.0",
    ),
    (
        "infinite weights",
        lambda: penalised([1, 1, 1, 1, 1, float("inf")]),
        ValueError,
        "weights must be 6 finite numbers … to inf",
    ),
    (
        "NaN as a weight",
        lambda: penalised(np.array([1.0, 1.0, 1.0, 1.0, 1.0, _NAN])),
        ValueError,
        "weights must be 6 finite numbers … nan",
    ),
    (
        "too few weights",
        lambda: penalised([1.0, 2.0]),
        ValueError,
        r"weights must be 6 … one per training row; got shape \(2,\)",
    ),
    (
        "weights by name",
        lambda: penalised("sigmoid"),
        TypeError,
        r"weights must be SigmoidWeights\(\), … got 'sigmoid'",
    ),
    (
        "weights as a class",
        lambda: penalised(bilevel.SigmoidWeights),
        TypeError,
        r"weights must be SigmoidWeights\(\), … got <class",
    ),
    (
        "a number as the penalty",
        lambda: softmax(penalty=0.1),
        TypeError,
        r"penalty must be an object such as bilevel.Ridge\(0.01\), got 0.1",
    ),
    ("a negative ridge", lambda: bilevel.Ridge(-1.0), ValueError, "strength … positive … -1.0"),
    (
        "nothing to learn",
        lambda: softmax(weights=None),
        ValueError,
        r"x would be empty … use SigmoidWeights\(\)",
    ),
    (
        "x0 of the wrong length",
        lambda: softmax(x0=torch.zeros(7)),
        ValueError,
        r"x0 must have shape \(6,\), got \(7,\)",
    ),
    (
        "x0 with a part missing",
        lambda: softmax(penalty=bilevel.PerFeature(), x0={"weights": torch.zeros(6)}),
        ValueError,
        r"x0 must have shape \{'weights': \(6,\), 'penalties': \(2,\)\}, got \{'weights': \(6,\)\}",
    ),
    (
        "y0 for more classes",
        lambda: softmax(y0=torch.zeros(2, 3)),
        ValueError,
        r"y0 must have shape \(2, 2\), got \(2, 3\)",
    ),
    (
        "y0 of another dtype",
        lambda: softmax(y0=torch.zeros(2, 2).double()),
        ValueError,
        "x0 is torch.float32 … y0 is torch.float64 … Convert",
    ),
)
def test_a_wrong_softmax_regression_raises(
    provoke: Callable[[], Any], error: type[Exception], text: str
) -> None:
    assert_raises(provoke, error, text)


def test_the_parts_of_x0_may_come_in_any_order() -> None:
    """The closed form reads x by place, so a dict in another order must not change its answers."""
    generator = torch.Generator().manual_seed(0)
    parts = {
        "penalties": torch.randn(2, generator=generator),
        "weights": torch.randn(6, generator=generator),
    }
    problem = softmax(penalty=bilevel.PerFeature(), x0=parts)
    assert torch.equal(problem.x_structure.unflatten(problem.x0)["weights"], parts["weights"])
    y = torch.randn(4, generator=generator)
    closed = SoftmaxOracle(problem.model.form).inner(problem.x0, y).value()
    torch.testing.assert_close(closed, AutogradOracle(problem).inner(problem.x0, y).value())


@pytest.mark.parametrize("kind", ["tensor", "torch csr", "scipy csr"])
def test_a_bias_is_a_last_column_of_ones_in_every_layout(kind: str) -> None:
    rows = {
        "tensor": _ROWS,
        "torch csr": softmax(scipy.sparse.csr_array(_ROWS.numpy())).model.form.train,
        "scipy csr": scipy.sparse.csr_array(_ROWS.numpy()),
    }[kind]
    biased = bilevel.add_bias(rows)
    dense = torch.as_tensor(biased.toarray()) if kind == "scipy csr" else biased.to_dense()
    assert torch.equal(dense, torch.cat([_ROWS, torch.ones(6, 1)], dim=1))
