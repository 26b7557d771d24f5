"""Any torch optimiser as an update."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bilevel.arguments import Schedule, at, positive
from bilevel.errors import UserError, quoted
from bilevel.problem.structure import Structure, Variables
from bilevel.solvers.updates.base import After, Look, Memory, Update, rate

OptimizerFactory = Callable[[Any], torch.optim.Optimizer]


@dataclass(frozen=True)
class TorchOptimizer(Update):
    """One step of any torch optimiser, whose state is kept between steps.

    Args:
        factory: makes the optimiser from a list of parameters, as
            `lambda parameters: torch.optim.RMSprop(parameters, lr=0.01)` does.
        lr: the learning rate, or a schedule; None leaves the optimiser's own.
        like: None, or the problem's x0 (y0, for inner steps). Then the factory receives the
            parameters in this structure (for a module, a dict by name), to put them into groups.
        scheduler: None, or a function that makes a torch scheduler from the optimiser, as
            `lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 1000)` does: each group's
            rate follows it, step by step.

    Example:
        >>> import torch, bilevel
        >>> x0 = {"rate": torch.zeros(1), "weights": torch.ones(3)}
        >>> update = bilevel.updates.TorchOptimizer(
        ...     lambda x: torch.optim.SGD(
        ...         [{"params": [x["rate"]], "lr": 0.1}, {"params": [x["weights"]], "lr": 1.0}]),
        ...     like=x0)
        >>> update.apply(torch.zeros(4), torch.ones(4), {}, bilevel.updates.Look())[0]
        tensor([-0.1000, -1.0000, -1.0000, -1.0000])
    """

    factory: OptimizerFactory
    lr: float | Schedule | None = None
    like: Variables = field(default=None, compare=False)
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise TypeError(
                "factory must be a function that makes a torch optimiser from a list of "
                f"parameters, got {quoted(self.factory)}"
            )
        if self.lr is not None:
            positive("lr", at(self.lr, 0))
            if self.scheduler is not None:
                raise ValueError(f"give lr = {quoted(self.lr)} or a scheduler, not both")

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        # A new optimiser at each step: an update holds nothing but its memory.
        tensors = [point] if self._structure is None else self._structure.views(point)
        parameters = [torch.nn.Parameter(tensor.clone()) for tensor in tensors]
        given = parameters if self._structure is None else self._structure.build(parameters)
        try:
            optimizer = self.factory(given)
        except TypeError as error:
            if "one of the params is str" not in str(error):
                raise
            raise UserError(
                "with like=, the factory receives the parameters by name: take their values, as in "
                "lambda named: torch.optim.Adam(named.values(), lr=0.01)"
            ) from error
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"factory {quoted(self.factory)} must make a torch optimiser from a list of "
                f"parameters, but it made {quoted(optimizer)}"
            )
        # Before loading: a new scheduler sets rates.
        scheduler = None if self.scheduler is None else self.scheduler(optimizer)
        for made in (optimizer, scheduler):
            if isinstance(made, torch.optim.LBFGS | torch.optim.lr_scheduler.ReduceLROnPlateau):
                raise UserError(
                    f"{type(made).__name__} asks for values of the loss, which an update does not "
                    "have: take one that needs gradients or the number of the step alone"
                )
        if "optimizer" in memory:
            # A copy: the optimiser shares the tensors it loads, and a step overwrites them.
            optimizer.load_state_dict(copy.deepcopy(memory["optimizer"]))
            if scheduler is not None:
                scheduler.load_state_dict(copy.deepcopy(memory["scheduler"]))
        # After loading, which restores the rate of the last step.
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] if self.lr is None else rate(self.lr, look)
        slopes = [gradient] if self._structure is None else self._structure.views(gradient)
        for parameter, slope in zip(parameters, slopes, strict=True):
            parameter.grad = slope.clone()
        optimizer.step()
        moved = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        if scheduler is None:
            return moved, {"optimizer": optimizer.state_dict()}
        scheduler.step()
        kept = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        return moved, kept

    @cached_property
    def _structure(self) -> Structure | None:
        return None if self.like is None else Structure("like", self.like)
