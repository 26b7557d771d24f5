"""Any optimiser of torch as an update."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import Schedule, at, positive
from bilevel.solvers.updates.base import Look, Memory, Update, rate

OptimizerFactory = Callable[[list[Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True)
class TorchOptimizer(Update):
    """One step of any torch optimiser, whose state is kept between steps.

    Args:
        factory: makes the optimiser from a list of parameters, as
            `lambda parameters: torch.optim.RMSprop(parameters, lr=0.01)` does.
        lr: the learning rate, or a schedule; None leaves the optimiser's own.
    """

    factory: OptimizerFactory
    lr: float | Schedule | None = None

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise TypeError(
                "factory must be a function that makes a torch optimiser from a list of "
                f"parameters, got {self.factory!r}"
            )
        if self.lr is not None:
            positive("lr", at(self.lr, 0))

    def apply(
        self, point: Tensor, gradient: Tensor, memory: Memory, look: Look
    ) -> tuple[Tensor, Memory]:
        # A new optimiser at each step: an update holds nothing but its memory.
        parameter = torch.nn.Parameter(point.clone())
        optimizer = self.factory([parameter])
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"factory {self.factory!r} must make a torch optimiser from a list of parameters, "
                f"but it made {optimizer!r}"
            )
        if "optimizer" in memory:
            # A copy: the optimiser shares the tensors that it loads, and a step overwrites them.
            optimizer.load_state_dict(copy.deepcopy(memory["optimizer"]))
        # After loading, which brings back the rate of the last step.
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] if self.lr is None else rate(self.lr, look)
        parameter.grad = gradient.clone()
        optimizer.step()
        return parameter.detach(), {"optimizer": optimizer.state_dict()}
