"""TorchOpt: implicit differentiation by `custom_root`, and its differentiable optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torchopt
from torch import Tensor

from race.case import Array, Case
from race.contestants.torch_autograd import gradient, start


def implicit(case: Case) -> Callable[[], Array]:
    losses, x, W0 = start(case)

    def optimality(W: Tensor, x: Tensor) -> Tensor:
        slope: Tensor = torch.func.grad(lambda W: losses.inner(x, W))(W)
        return slope

    @torchopt.diff.implicit.custom_root(  # type: ignore[untyped-decorator]
        optimality,
        argnums=1,
        solve=torchopt.linear_solve.solve_cg(maxiter=case.count("N"), rtol=0.0, atol=0.0),
    )
    @torch.enable_grad()  # it is called where gradients are off
    def solve(W: Tensor, x: Tensor) -> Tensor:
        for _ in range(case.count("D")):
            W = W - case.settings["alpha"] * gradient(losses, x, W)
        return W.detach()

    def run() -> Array:
        found: Tensor = torch.autograd.grad(losses.outer(solve(W0, x)), x)[0]
        return found.numpy()

    return run


def unrolled(case: Case) -> Callable[[], Array]:
    losses, x, W0 = start(case)

    def run() -> Array:
        model = _Weights(W0)
        optimizer: Any = torchopt.MetaSGD(model, lr=case.settings["alpha"])
        for _ in range(case.count("D")):
            optimizer.step(losses.inner(x, model.W))
        return torch.autograd.grad(losses.outer(model.W), x)[0].numpy()

    return run


class _Weights(torch.nn.Module):
    def __init__(self, W: Tensor) -> None:
        super().__init__()
        self.W = torch.nn.Parameter(W.clone())
