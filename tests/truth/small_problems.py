"""Small problems with curvature that changes: softmax regression and a neural network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import bilevel


def softmax(
    rows: int = 30, features: int = 4, classes: int = 3, seed: int = 0, **arguments: Any
) -> bilevel.Problem:
    """Softmax regression on noisy labels; by default with a learned penalty a feature."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(features, classes, generator=generator, dtype=torch.float64)

    def sample() -> tuple[Tensor, Tensor]:
        X = torch.randn(rows, features, generator=generator, dtype=torch.float64)
        noise = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
        return X, (X @ truth + noise).argmax(1)

    arguments.setdefault("penalty", bilevel.PerFeature())
    return bilevel.softmax_problem(sample(), sample(), classes=classes, **arguments)


def network(seed: int = 0) -> bilevel.Problem:
    """A two-layer network; x holds a weight for each training row and a log penalty a layer.

    The ridge makes the inner Hessian positive definite around the start.
    """
    generator = torch.Generator().manual_seed(seed)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    y0 = {
        name: 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        for name, parameter in module.named_parameters()
    }
    X = torch.randn(24, 2, generator=generator, dtype=torch.float64)
    b = torch.sin(2 * X[:, :1]) + X[:, 1:] ** 2

    def outer(x: Any, y: Any, batch: bilevel.Batch) -> Tensor:
        rows, targets = batch.data
        return (functional_call(module, y, (rows,)) - targets).square().mean()

    def inner(x: Any, y: Any, batch: bilevel.Batch) -> Tensor:
        rows, targets = batch.data
        losses = (functional_call(module, y, (rows,)) - targets).square().mean(1)
        first = y["0.weight"].square().sum() + y["0.bias"].square().sum()
        last = y["2.weight"].square().sum() + y["2.bias"].square().sum()
        penalty = x["penalties"].exp() @ torch.stack([first, last])
        return (x["weights"][batch.index].sigmoid() * losses).mean() + penalty

    x0 = {"weights": torch.linspace(-1, 1, 16).double(), "penalties": torch.zeros(2).double() - 0.5}
    return bilevel.Problem(
        outer, inner, x0, y0, outer_data=(X[16:], b[16:]), inner_data=(X[:16], b[:16])
    )


def cleaning(rows: int = 20, ridge: float = 0.02) -> bilevel.Problem:
    """Softmax regression with learned sample weights, and a ridge on x outside.

    Without the ridge, weights drift to 0 or 1 for ever; with it there is a stationary point at
    a finite x. Stated as plain losses, so that automatic differentiation serves it.
    """
    plain = softmax(rows, weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.05))
    form = plain.model.form
    return bilevel.Problem(
        outer=lambda x, y, batch: form.outer(x, y, batch) + ridge * x.square().sum(),
        inner=form.inner,
        x0=torch.zeros(rows).double(),
        y0=torch.zeros(form.shape).double(),
        outer_data=(form.validation, form.validation_labels),
        inner_data=(form.train, form.train_labels),
    )
