"""Losses of the user's own program: of tensors that they hold, or of an argmin's variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bilevel.errors import UserError
from bilevel.problem.chance import Chance, key
from bilevel.problem.draws import Draw, Moment
from bilevel.problem.isolation import generators_of
from bilevel.problem.losses import Losses, nodes, refuse_recomputed
from bilevel.problem.networks import Buffers, Networks
from bilevel.problem.structure import Structure, Variables

Given = Tensor | nn.Module | Iterable[Tensor]  # a module stands for what it trains


class Closures(Losses):
    """f and g at the values that their tensors have now.

    For another y, as finite differences need, the values are written into the tensors; `restore`
    puts the original ones back.

    Args:
        outer, inner: the losses.
        xs, ys: the tensors that they use.
        again: whether the losses are called at several y, with the same draws each time.
    """

    x_structure: _Held
    y_structure: _Held

    def __init__(
        self,
        outer: Callable[[], Tensor],
        inner: Callable[[], Tensor],
        xs: Given,
        ys: Given,
        again: bool = False,
    ) -> None:
        x, y = self.x_structure, self.y_structure = _Held("x", xs), _Held("y", ys)
        if {id(t) for t in x.given} & {id(t) for t in y.given}:
            raise ValueError("a tensor is in both x and y: leave it out of one of them")
        self.x0, self.y0 = x.flatten(x.given), y.flatten(y.given)
        self.outer, self.inner = lambda x, y: outer(), lambda x, y: inner()
        self.outer_data = self.inner_data = self.networks = None
        self.dtype, self.device = self.y_structure.dtype, self.y_structure.device
        self.buffers, self._modules = {}, []
        self.chance = Chance(self.device, generators_of(outer, inner) if again else ())
        if again:
            self.chance = self.chance.every()
        # From the caller's generator, as the losses would draw: another mask in each call.
        seed = int(torch.randint(2**31, ())) if again else 0
        self.moment = Moment(seed, 0, {})

    def call(
        self, name: str, xs: Sequence[Tensor], ys: Sequence[Tensor], draw: Draw
    ) -> tuple[Any, Buffers]:
        self.y_structure.put(ys)
        return super().call(name, xs, ys, draw)

    def restore(self) -> None:
        """Put the original values of y back."""
        self.y_structure.put(self.y_structure.views(self.y0))


class FixedLoss(Losses):
    """g as one function of flat y and the tensors of x: each call has the draws of the first.

    Args:
        inner: a loss of x and y.
        x, y: the variables, by which their structures are known.
    """

    def __init__(self, inner: Callable[..., Tensor], x: Variables, y: Variables) -> None:
        self.x_structure, self.y_structure = Structure("x", x), Structure("y0", y)
        self.inner, self.inner_data = inner, None
        modules = self.x_structure.modules | self.y_structure.modules
        self.networks = Networks(modules) if modules else None
        buffers = {} if self.networks is None else self.networks.buffers
        self.chance, self._tried = Chance(self.y_structure.device, generators_of(inner)), False
        # By the caller's generator, which only a loss that draws has to `advance`.
        self._draw = Draw(None, key(torch.default_generator.get_state().tolist()), buffers)

    def __call__(self, y: Tensor, *xs: Tensor) -> Tensor:
        ys = self.y_structure.views(y)
        if self._tried:
            return self.call("inner", xs, ys, self._draw)[0]
        with self.chance.every().seeded(self._draw.number), self.chance.watched():
            value = self.call("inner", xs, ys, self._draw)[0]
        self._tried = True
        if self.networks is not None:
            refuse_recomputed(value)
        if held := _leaves(value) - set().union(*map(_leaves, (y, *xs))):
            # What the loss itself makes to differentiate by is another tensor in each call.
            held &= _leaves(self.call("inner", xs, ys, self._draw)[0])
        for tensor in held:
            raise UserError(
                f"inner closes over a tensor of shape {tuple(tensor.shape)} that requires a "
                "gradient, which argmin could not give: hand it over as a part of x, or detach it"
            )
        return value

    def advance(self) -> None:
        """Let the next loss draw other numbers, if this one draws at all."""
        if self.chance.names:
            torch.rand(())


class _Held(Structure):
    """A structure whose leaves are the user's own tensors, not views of a vector."""

    lends = False

    def __init__(self, name: str, given: Given) -> None:
        tensors = list(_tensors(given))
        wrong = [t for t in tensors if not (isinstance(t, Tensor) and t.requires_grad)]
        if wrong or not tensors:
            raise ValueError(
                f"{name} must be a list of tensors that require a gradient, such as parameters; "
                f"{len(wrong)} of {len(tensors)} are not"
            )
        for number, tensor in enumerate(tensors):
            if not tensor.is_leaf:
                raise ValueError(
                    f"{name}[{number}] is computed from other tensors: give those (in the list, "
                    "and in the losses), since a gradient is kept for leaves only"
                )
            if tensor._backward_hooks:
                raise ValueError(
                    f"{name}[{number}] has a hook on its gradient, which would also run on parts "
                    "of products: remove it, and change .grad after the call in its place"
                )
        super().__init__(name, tensors)
        self.given = self._tensors = tensors

    def leaves(self, flat: Tensor) -> list[Tensor]:
        self.put(self.views(flat))
        return self._tensors

    def put(self, parts: Sequence[Tensor]) -> None:
        """Write these values into the tensors, unless they are there already."""
        if self._is_here(parts):
            return
        for tensor, part in zip(self._tensors, parts, strict=True):
            tensor.data.copy_(part.detach())
        torch.clear_autocast_cache()  # which holds casts of the values before

    def _is_here(self, parts: Sequence[Tensor]) -> bool:
        # Exactly: finite differences move by little.
        return all(torch.equal(t, part) for t, part in zip(self._tensors, parts, strict=True))


def _leaves(value: Tensor) -> set[Tensor]:
    """What the value was computed from, as far as it requires a gradient."""
    found = {node.variable for node in nodes(value) if hasattr(node, "variable")}
    return found | ({value} if value.requires_grad and value.is_leaf else set())


def _tensors(given: Given) -> Iterable[Tensor]:
    if isinstance(given, nn.Module):
        return [p for p in given.parameters() if p.requires_grad]
    if isinstance(given, Mapping):
        return given.values()
    return [given] if isinstance(given, Tensor) else given
