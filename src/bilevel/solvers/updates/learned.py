"""Inner steps whose learning rates and decays are functions of x."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bilevel.errors import UserError, quoted
from bilevel.oracles.autograd import Recording
from bilevel.problem.leaves import leaves
from bilevel.problem.structure import Structure, Variables
from bilevel.solvers.updates.base import After, Around, Back, Look, Memory

Rates = Callable[[Any], Any]


@dataclass(frozen=True)
class Learned(Around):
    """p ← p + ρ(x)∘(U(p, g) − p − δ(x)∘p) for any update U: ITD differentiates through ρ and δ.

    With `Descent(1.0)` or `Adam(1.0)` as U, ρ is the learning rate; a schedule in U remains a
    factor of it. δ is a decay that does not go through U's means, as in AdamW; one that does is a
    penalty in the inner loss. Implicit methods take y as solved: for them rates have no slope.
    If no loss depends on x, which a Problem takes for a mistake, add 0 * x.sum() to one of them.

    Args:
        update: U.
        like: (x0, y0) of the problem.
        rate: ρ, a function of x: a number, or one for each tensor of y in y's structure (for a
            module, a dict by name), in any shape that expands to the tensor's. None means 1.
        decay: δ, likewise; None means 0.

    Example:
        A rate for each of two tensors.

        >>> import torch, bilevel
        >>> x0, y0 = torch.zeros(2), {"w": torch.zeros(3), "b": torch.zeros(1)}
        >>> steps = bilevel.updates.Learned(
        ...     bilevel.updates.Descent(1.0), like=(x0, y0),
        ...     rate=lambda x: {"w": 0.1 * x[0].exp(), "b": 0.2 * x[1].exp()})
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y["w"] - 1) ** 2).sum() + y["b"].sum() + 0 * x.sum(),
        ...     inner=lambda x, y: ((y["w"] - 2) ** 2).sum() + ((y["b"] - 1) ** 2).sum(),
        ...     x0=x0, y0=y0)
        >>> bilevel.hypergradient(
        ...     problem, x0, y0, bilevel.ITD(), bilevel.inner.Steps(steps, 1)).value
        tensor([-1.4400,  0.4000])
    """

    like: tuple[Variables, Variables] = field(compare=False)
    rate: Rates | None = None
    decay: Rates | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.like, tuple) or len(self.like) != 2:
            raise ValueError(f"like must be (x0, y0) of the problem, got {quoted(self.like)}")
        if self.rate is None and self.decay is None:
            raise ValueError(
                "give rate or decay, a function of x such as lambda x: x.exp(); with neither, "
                f"{type(self.update).__name__} alone is enough"
            )
        for name, given in (("rate", self.rate), ("decay", self.decay)):
            if given is not None and not callable(given):
                raise TypeError(
                    f"{name} must be a function of x, got {quoted(given)}: a fixed one belongs "
                    f"to {type(self.update).__name__}"
                )

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        moved, memory = self.update.apply(point, gradient, memory, look)
        step = moved - point
        if self.decay is not None:
            step -= self._at(self.decay, look).value * point
        if self.rate is not None:
            step *= self._at(self.rate, look).value
        return point + step, memory

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        point = look.point
        assert point is not None
        step, of_x = self.update.apply(point, gradient, memory, look)[0] - point, list[Tensor]()
        along = r
        if self.decay is not None:
            decay = self._at(self.decay, look)
            step -= decay.value * point
        if self.rate is not None:
            rate = self._at(self.rate, look)
            of_x.append(rate.pull(r * step))
            along = r * rate.value
        # p enters the moved point directly, through U, and through what U and the decay subtract.
        back = self.update.transpose(along, of_memory, gradient, memory, look)
        held = r - along + back.point
        if self.decay is not None:
            held = held - along * decay.value
            of_x.append(decay.pull(-along * point))
        known = [] if back.of_x is None else [back.of_x]
        return back._replace(point=held, of_x=sum(known + of_x, start=torch.zeros_like(of_x[0])))

    def _at(self, function: Rates, look: Look) -> Recording:
        if look.x is None:
            raise UserError(
                "bilevel.updates.Learned moves y, in bilevel.inner.Steps: there is no x that the "
                "rates of another point could depend on"
            )
        of_x, _ = self._structures
        return Recording(lambda x: self._flat(function(of_x.unflatten(x))), look.x)

    @cached_property
    def _structures(self) -> tuple[Structure, Structure]:
        return Structure("x0", self.like[0]), Structure("y0", self.like[1])

    def _flat(self, given: Any) -> Tensor:
        _, of_y = self._structures
        tensors = of_y.views(torch.empty(of_y.size, dtype=of_y.dtype, device="meta"))
        one = isinstance(given, Tensor) and given.numel() == 1
        found = [given.reshape(())] * len(tensors) if one else list(leaves(given))
        if len(found) != len(tensors):
            raise ValueError(
                f"rate and decay must give one number, or one for each of the {len(tensors)} "
                f"tensors of y; got {len(found)}"
            )
        pairs = zip(found, tensors, strict=True)
        return torch.cat([given.expand(tensor.shape).reshape(-1) for given, tensor in pairs])
