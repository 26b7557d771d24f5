"""Calling a problem's losses: in the user's structures, with seeded draws and own buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from bilevel.errors import UserError, quoted
from bilevel.problem.chance import Chance
from bilevel.problem.draws import Draw, Moment
from bilevel.problem.isolation import untouched
from bilevel.problem.networks import Buffers, Networks
from bilevel.problem.sources import Rows, Source
from bilevel.problem.structure import Structure, Variables

Loss = Callable[..., Tensor]


class LossError(ValueError):
    """A loss returned something other than one number."""


class Losses:
    """Two losses with their data, ready to be called; `Problem` fills in the attributes.

    Args:
        chance: the generators that the losses draw from.
        moment: the outer step in which they are called.
        buffers: the initial buffers of the modules among the variables.
        slopes_inside: those of "outer" and "inner" that take derivatives themselves, as of a
            network in its inputs: they need a graph for their mere value, too.
    """

    outer: Loss
    inner: Loss
    x_structure: Structure
    y_structure: Structure
    outer_data: Source | None
    inner_data: Source | None
    dtype: torch.dtype
    device: torch.device
    networks: Networks | None
    chance: Chance
    moment: Moment
    buffers: Buffers
    rank: int = 0  # among several processes
    slopes_inside: Collection[str] = ()  # the losses that take derivatives themselves
    is_coarse: bool = False  # whether some of a loss is computed in half precision
    _modules: list[nn.Module]

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        """Where the inner steps start: at y, unless y0 was given as a function of x."""
        return y

    @contextmanager
    def untouched(self, seed: int, step: int = 0, buffers: Buffers | None = None) -> Iterator[None]:
        """Inside the block, the losses draw from seeded generators and leave no trace.

        Args:
            seed, step: the key of the random draws.
            buffers: of the modules among the variables; `moment.buffers` has the final ones.
        """
        outside = self.moment
        self.moment = Moment(seed, step, buffers or self.buffers, self.rank)
        try:
            with untouched(self._modules, self.device, seed + step):
                yield
        finally:
            self.moment = outside

    def draw(self, loss: str, rows: Rows) -> Draw:
        """What the next call of a loss depends on besides x and y."""
        data = self.inner_data if loss == "inner" else self.outer_data
        if data is not None and data.is_stream:
            batch = self.moment.next_batch(loss, data)
            return Draw(rows, self.moment.number(loss), self.moment.buffers, batch)
        if not (self.chance.names or self.buffers or not (data is None or data.is_fixed)):
            # The usual case, often.
            return Draw(rows)
        return Draw(rows, self.moment.number(loss), self.moment.buffers)

    def outer_loss(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """f on flat x and y."""
        return self._loss("outer", x, y, rows)

    def inner_loss(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """g on flat x and y."""
        return self._loss("inner", x, y, rows)

    def _loss(self, name: str, x: Tensor, y: Tensor, rows: Rows) -> Tensor:
        xs, ys = self.x_structure.views(x), self.y_structure.views(y)
        return self.call(name, xs, ys, self.draw(name, rows))[0]

    def value(self, name: str, x: Tensor, y: Tensor, draw: Draw) -> Tensor:
        """The value of a loss, and no more."""
        with torch.set_grad_enabled(name in self.slopes_inside):
            xs, ys = self.held(name, self.x_structure, x), self.held(name, self.y_structure, y)
            return self.call(name, xs, ys, draw)[0].detach()

    def held(self, name: str, structure: Structure, flat: Tensor) -> list[Tensor]:
        """The tensors of a variable in which this loss is not going to be differentiated."""
        if name in self.slopes_inside:
            return structure.leaves(flat)
        return structure.views(flat.detach())

    def call(
        self, name: str, xs: Sequence[Tensor], ys: Sequence[Tensor], draw: Draw
    ) -> tuple[Tensor, Buffers]:
        """A loss at the tensors of x and y, and the modules' buffers after the call."""
        inner = name == "inner"
        loss, data = (self.inner, self.inner_data) if inner else (self.outer, self.outer_data)
        batch = () if data is None else (draw.batch(data, self.chance),)
        if self.chance.names:
            with self.chance.seeded(draw.number):
                value, after = self._called(loss, xs, ys, batch, draw.buffers)
        else:
            value, after = self._called(loss, xs, ys, batch, draw.buffers)
        if type(value) is Tensor and not value.shape:
            return value, after
        return _one_number(name, value), after

    def _called(
        self, loss: Loss, xs: Sequence[Tensor], ys: Sequence[Tensor], batch: Any, buffers: Buffers
    ) -> tuple[Any, Buffers]:
        x, y = self.x_structure, self.y_structure
        if self.networks is None:
            return loss(x.build(xs), y.build(ys), *batch), buffers
        return self.networks.call(
            loss,
            lambda put: [
                x.build(xs, lambda at, tensors: put(at.path, tensors)),
                y.build(ys, lambda at, tensors: put(at.path, tensors)),
                *batch,
            ],
            buffers,
        )

    def modules(self, x: Tensor, y: Tensor, buffers: Buffers) -> tuple[Variables, Variables]:
        """x and y in the user's structures, as copies, with modules as trained copies."""
        both = (self.x_structure, x.clone()), (self.y_structure, y.clone())
        if self.networks is None:
            return both[0][0].unflatten(both[0][1]), both[1][0].unflatten(both[1][1])
        nets, tensors = self.networks, dict[str, list[Tensor]]()
        # All tensors first: a module may have variables of both x and y.
        for structure, flat in both:
            structure.build(structure.views(flat), lambda at, own: tensors.update({at.path: own}))
        found = [
            structure.build(
                structure.views(flat), lambda at, _: nets.copy(at.path, tensors, buffers)
            )
            for structure, flat in both
        ]
        return found[0], found[1]

    def has_dropout(self) -> bool:
        """Whether a module may draw random numbers, even if not in its current mode."""
        nets = [] if self.networks is None else [*self.networks.all()]
        every = [*nets, *(part for module in self._modules for part in module.modules())]
        own = [m for m in every if type(m).__module__.startswith("torch.nn")]
        # Dropout layers call it p; recurrent and attention layers call it dropout.
        shares = [getattr(m, "p", getattr(m, "dropout", 0)) for m in own]
        return any(isinstance(share, float) and share > 0 for share in shares)


def _one_number(name: str, value: object) -> Tensor:
    """A loss as a tensor without dimensions."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.reshape(())
    if isinstance(value, Tensor):
        what = f"{tuple(value.shape)}. Reduce it, for example with .mean()."
    else:
        what = f"{quoted(value)}. Return the loss alone, with its graph (no .item())."
    raise LossError(f"the {name} loss must return one number as a tensor, got {what}")


def nodes(value: Tensor) -> Iterator[Any]:
    """The graph that autograd keeps of a value: nothing is computed."""
    seen, ahead = set[Any](), [value.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            ahead.extend(following for following, _ in node.next_functions)


def refuse_hidden(node: Any) -> None:
    """An error where parameters that a loss uses are not in its graph."""
    if node.name() == "CheckpointFunctionBackward":
        raise UserError(
            "torch.utils.checkpoint(..., use_reentrant=True) hides parameters from "
            "torch.autograd.grad, so that their derivatives would be missing: leave it out "
            "(memory= of ITD saves more); in bilevel.backward, use_reentrant=False will do"
        )


def is_coarse(value: Tensor) -> bool:
    """Whether some of it was computed in half precision, as inside autocast."""
    known = (getattr(node, "_input_metadata", ()) for node in nodes(value))
    return any(about.dtype.itemsize < 4 for parts in known for about in parts)


def refuse_recomputed(value: Tensor) -> None:
    """An error where autograd would call a module of the variables again, without its numbers."""
    for node in nodes(value):
        kind: Any = type(node)
        for name in _saved_by(kind):
            if _is_made_again(getattr(node, f"_raw{name}")) and _has_nan(getattr(node, name)):
                raise UserError(
                    "a module among x and y computes activations again in the backward pass, as "
                    "torch.utils.checkpoint does: that would be after the loss has returned, when "
                    "the module has given its numbers back. Leave it out: memory= of ITD saves "
                    "more; or take bilevel.backward, in a loop of your own"
                )


@cache
def _saved_by(kind: Any) -> list[str]:
    return [name[4:] for name in dir(kind) if name.startswith("_raw_saved_")]


def _is_made_again(saved: Any) -> bool:
    try:
        for one in saved if isinstance(saved, tuple | list) else [saved]:
            one.register_hooks(_same, _same)
    except RuntimeError as error:  # where there are hooks already
        return "already been set" in str(error)
    return False


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _has_nan(saved: Any) -> bool:
    parts = saved if isinstance(saved, tuple | list) else [saved]
    return any(isinstance(part, Tensor) and bool(part.isnan().any()) for part in parts)


def leads_to(value: Tensor, leaf: Tensor) -> bool:
    """Whether a value depends on a leaf; a graph alone may come from parameters of others."""
    return value is leaf or any(getattr(node, "variable", None) is leaf for node in nodes(value))
