"""higher: the inner loop on a functional copy of a module, unrolled."""

from __future__ import annotations

from collections.abc import Callable

import higher
import torch

from race.case import Array, Case
from race.contestants.torch_autograd import Losses, start


class Model(torch.nn.Module):
    def __init__(self, losses: Losses) -> None:
        super().__init__()
        self.losses, self.W = losses, torch.nn.Parameter(torch.zeros(losses.case.shape))

    def forward(self) -> torch.Tensor:
        return self.W


def unrolled(case: Case) -> Callable[[], Array]:
    losses, x, _ = start(case)

    def run() -> Array:
        model = Model(losses)
        optimizer = torch.optim.SGD(model.parameters(), lr=case.settings["alpha"])
        with higher.innerloop_ctx(model, optimizer) as (copy, differentiable):
            for _ in range(case.count("D")):
                differentiable.step(losses.inner(x, copy()))
            return torch.autograd.grad(losses.outer(copy()), x)[0].numpy()

    return run
