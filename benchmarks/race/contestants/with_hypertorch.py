"""hypertorch (package `hypergrad`, not on PyPI): its CG on the gradient-descent map."""

from __future__ import annotations

from collections.abc import Callable

import hypergrad
import torch
from torch import Tensor

from race.case import Array, Case
from race.contestants.ladder import first_accurate
from race.contestants.torch_autograd import gradient, start


def _run(case: Case, steps: int, products: int, tol: float) -> Callable[[], Array]:
    losses, x, W0 = start(case)
    alpha = case.settings["alpha"]

    def fixed_point(params: list[Tensor], hparams: list[Tensor]) -> list[Tensor]:
        loss = losses.inner(hparams[0], params[0])
        return [params[0] - alpha * torch.autograd.grad(loss, params[0], create_graph=True)[0]]

    def outer(params: list[Tensor], hparams: list[Tensor]) -> Tensor:
        return losses.outer(params[0])

    def run() -> Array:
        W = W0
        for _ in range(steps):
            W = W - alpha * gradient(losses, x, W)
        found = hypergrad.CG([W], [x], products, fixed_point, outer, tol=tol, set_grad=False)
        answer: Array = found[0].detach().numpy()
        return answer

    return run


def implicit(case: Case) -> Callable[[], Array]:
    return _run(case, case.count("D"), case.count("N"), 0.0)


def exact(case: Case) -> Callable[[], Array]:
    """As many steps as it needs: the first on a ladder that gives 1 %, found beforehand."""
    rungs = ((steps, _run(case, steps, max(50, steps // 10), 1e-8)) for steps in (300, 1000, 3000))
    return first_accurate(case, ((f"{steps} steps", run) for steps, run in rungs))
