"""Wrong problems and data raise, with the value that is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bilevel

from ..truth.raised_errors import assert_raises, claims

_NAN = float("nan")
_META = torch.ones(2, device="meta")
_ROWS = torch.arange(12.0).view(6, 2)


def problem(
    outer: Any = lambda x, y: (y**2).sum(),
    inner: Any = lambda x, y: ((y - x) ** 2).sum(),
    x0: Any = None,
    y0: Any = None,
    **data: Any,
) -> bilevel.Problem:
    x0 = torch.ones(2) if x0 is None else x0
    return bilevel.Problem(outer, inner, x0, torch.zeros(2) if y0 is None else y0, **data)


def on_data(data: Any, inner: Any = None) -> bilevel.Problem:
    def fit(x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        return ((y - x - batch.data) ** 2).mean()

    return problem(inner=inner or fit, inner_data=data)


class Rows:
    """A map-style data set whose last row is not finite."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"a": torch.ones(2), "b": torch.tensor(_NAN if number == 9 else 1.0)}


def run_on_rows() -> None:
    def fit(x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        return ((y - x - batch.data["a"]) ** 2).mean() * batch.data["b"].mean()

    bilevel.minimize(on_data(Rows(), fit), bilevel.algorithms.AIDBiO(), steps=1)


@claims(
    ("loss that is no function", lambda: problem(inner=3), TypeError, "inner … function … int 3"),
    (
        "y0 of the wrong shape",
        lambda: problem(y0=torch.zeros(3)),
        ValueError,
        r"inner loss failed … inner\(x, y\) … size of tensor a \(3\) … must match",
    ),
    (
        "loss whose own error is a ValueError",
        lambda: problem(
            inner=lambda x, y: nn.functional.cross_entropy(
                y + x + torch.zeros(3, 2), torch.tensor([0, 1])
            )
        ),
        ValueError,
        r"inner loss failed … batch_size \(3\) … shape",
    ),
    (
        "loss that wants a batch without data",
        lambda: problem(inner=lambda x, y, batch: (x * y).sum()),
        ValueError,
        r"called as inner\(x, y\): … given a batch only if it has data",
    ),
    (
        "loss that wants no batch with data",
        lambda: on_data(_ROWS, lambda x, y: (x * y).sum()),
        ValueError,
        r"called as inner\(x, y, batch\): … given a batch only if it has data",
    ),
    (
        "loss that is a vector",
        lambda: problem(inner=lambda x, y: y - x),
        ValueError,
        r"inner loss must return one number … \(2,\) … \.mean\(\)",
    ),
    (
        "loss that is no tensor",
        lambda: problem(outer=lambda x, y: 3.5),
        ValueError,
        "outer loss must return one number as a tensor, got 3.5",
    ),
    (
        "outer loss without y",
        lambda: problem(outer=lambda x, y: x.sum()),
        ValueError,
        "outer loss does not depend on y … Use the y",
    ),
    (
        "inner loss with y detached",
        lambda: problem(inner=lambda x, y: (x * y.detach()).sum()),
        ValueError,
        "inner loss does not depend on y … do not detach",
    ),
    (
        "x that neither loss uses",
        lambda: problem(inner=lambda x, y: (y**2).sum()),
        ValueError,
        "neither loss depends on x … x0 needs no gradient … Use the x",
    ),
    (
        "frozen parameter",
        lambda: problem(x0={"w": nn.Parameter(torch.ones(2), requires_grad=False)}),
        ValueError,
        r"x0\['w'\] is a frozen parameter … unfreeze",
    ),
    (
        "loss that is not finite at the start",
        lambda: problem(inner=lambda x, y: (x * y / y).sum()),
        ValueError,
        "inner loss is nan at x0, y0: start elsewhere",
    ),
    (
        "x0 with a NaN",
        lambda: problem(x0=torch.tensor([1.0, _NAN])),
        ValueError,
        "x0 holds 1 values that are NaN or infinite: start from finite",
    ),
    (
        "y0 with infinities",
        lambda: problem(y0=torch.full((2,), float("inf"))),
        ValueError,
        "y0 holds 2 values that are NaN or infinite: start from finite",
    ),
    (
        "integers as variables",
        lambda: problem(y0=torch.zeros(2, dtype=torch.int64)),
        ValueError,
        r"y0 has dtype torch.int64 … Convert it … \.double\(\)",
    ),
    ("an array as x0", lambda: problem(x0=np.ones(2)), TypeError, "x0 must be a tensor … ndarray"),
    (
        "x0 and y0 of two dtypes",
        lambda: problem(y0=torch.zeros(2).double()),
        ValueError,
        "x0 is torch.float32 … y0 is torch.float64 … Convert one",
    ),
    (
        "x0 and y0 on two devices",
        lambda: problem(y0=_META),
        ValueError,
        "x0 … on cpu … y0 … on meta … share … one device. Convert",
    ),
    (
        "parts of x0 on two devices",
        lambda: problem(x0=(torch.ones(2), _META)),
        ValueError,
        r"x0\[1\] has device meta … x0\[0\] has cpu … Convert one with .to\(cpu\)",
    ),
    (
        "variables without values",
        lambda: problem(x0=_META, y0=_META),
        ValueError,
        "x0 and y0 are on device meta … use a real one",
    ),
    (
        "loss that mixes devices",
        lambda: problem(inner=lambda x, y: ((y - x) * _META).sum()),
        ValueError,
        "inner loss failed … device meta … x0 and y0 are torch.float32 on cpu … must match",
    ),
)
def test_a_wrong_problem_raises(
    provoke: Callable[[], Any], error: type[Exception], text: str
) -> None:
    assert_raises(provoke, error, text)


@claims(
    (
        "NaN",
        lambda: on_data(torch.tensor([1.0, _NAN])),
        ValueError,
        "inner_data holds 1 values that are NaN or infinite: clean",
    ),
    ("NaN in a data set", run_on_rows, ValueError, "inner_data holds 1 values … NaN … clean"),
    ("no rows", lambda: on_data(torch.zeros(0, 2)), ValueError, "inner_data has no rows: give"),
    ("no parts", lambda: on_data(()), ValueError, "inner_data is an empty tuple: give"),
    (
        "parts of unequal length",
        lambda: on_data((torch.zeros(3), torch.zeros(4))),
        ValueError,
        r"inner_data have different numbers of rows: \[3, 4\] … row i of each",
    ),
    ("a dict", lambda: on_data({"a": 3}), TypeError, "'a'.* must … a tensor … got int"),
    ("a name", lambda: on_data("mnist"), TypeError, "inner_data must be a tensor … got str"),
    ("a number", lambda: on_data(torch.tensor(3.0)), ValueError, "single number, 3.0 … need rows"),
    (
        "no values",
        lambda: on_data(torch.ones(3, 2, device="meta")),
        ValueError,
        "inner_data is on device meta … load it on a real one",
    ),
    (
        "another layout",
        lambda: on_data(torch.eye(2).to_sparse()),
        ValueError,
        r"inner_data has layout torch.sparse_coo … to_sparse_csr\(\)",
    ),
    (
        "another dtype, that the loss takes on",
        lambda: on_data(_ROWS.double()),
        ValueError,
        "inner loss is torch.float64 but x0 and y0 are torch.float32: convert",
    ),
    (
        "another dtype, that the loss cannot use",
        lambda: on_data(_ROWS.double(), lambda x, y, batch: (batch.data @ y - x.sum()).sum()),
        ValueError,
        "inner loss failed … same dtype … x0 and y0 are torch.float32 … must match in dtype",
    ),
)
def test_wrong_data_raise(provoke: Callable[[], Any], error: type[Exception], text: str) -> None:
    assert_raises(provoke, error, text)


@pytest.mark.parametrize("name", ["outer", "inner"])
@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray, lambda X: {"rows": X}])
def test_a_loss_that_writes_into_its_data_is_refused(name: str, kind: Any) -> None:
    """A batch of all rows may be the user's own tensor."""
    X = kind(torch.ones(6, 2))

    def loss(x, y, batch):
        return ((rows_of(batch) @ y - x) ** 2).mean()

    def writes(x, y, batch):
        rows_of(batch).mul_(2)
        return loss(x, y, batch)

    def rows_of(batch):
        return batch.data["rows"] if isinstance(batch.data, dict) else batch.data

    losses = {"outer": loss, "inner": loss, name: writes}
    with pytest.raises(ValueError, match=f"the {name} loss writes into batch.data"):
        bilevel.Problem(
            **losses, x0=torch.tensor(0.0), y0=torch.zeros(2), outer_data=X, inner_data=X
        )
