"""A bilevel problem: two losses, their data, and where to start."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from bilevel.arguments import Checked, Count, instance
from bilevel.errors import UserError, quoted
from bilevel.problem.chance import Chance, Held
from bilevel.problem.draws import Draw, Moment
from bilevel.problem.identity.digests import digest_of_data
from bilevel.problem.isolation import generators_of, modules_of
from bilevel.problem.loaders import as_data
from bilevel.problem.losses import (
    Loss,
    LossError,
    Losses,
    is_coarse,
    leads_to,
    nodes,
    refuse_hidden,
    refuse_recomputed,
)
from bilevel.problem.model import Model
from bilevel.problem.networks import Buffers, Networks
from bilevel.problem.peers import Alone, Peers
from bilevel.problem.sources import Rows, Source
from bilevel.problem.structure import Structure, Variables, mixed

# Whether a loss draws shows in the generators that all threads share: one trial at a time.
_TRIAL = RLock()
_WRITES = (
    " A loss must not write into what it is given, as Embedding(max_norm=...) does: take the norm "
    "in the forward pass in its place."
)


@dataclass(frozen=True)
class Tasks(Checked):
    """Rows are tasks, which both losses share: `Problem(..., tasks=Tasks(batch=16))`.

    Args:
        batch: how many tasks both losses see in an outer step, cyclically: the first ones in the
            first step, the next ones in the second, and so on.
        chunk: None, or how many of them are processed at a time, to save memory (and, for large
            models, time). Only if g is a sum and f a mean over tasks, and each task has inner
            variables of its own.

    Example:
        >>> import torch, bilevel
        >>> goals = torch.tensor([[1.0], [3.0]]).double()  # of two tasks, which share x
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, tasks: (y[tasks.index] - tasks.data).square().mean(),
        ...     inner=lambda x, y, tasks: (y[tasks.index] - x).square().sum(),
        ...     x0=torch.zeros(1).double(), y0=torch.zeros(2, 1).double(),
        ...     inner_data=goals, outer_data=goals, tasks=bilevel.Tasks(batch=2))
        >>> bilevel.minimize(problem, steps=50).x
        tensor([2.0000], dtype=torch.float64)
    """

    batch: Count
    chunk: Count | None = None


class Problem(Losses):
    """Minimise Φ(x) = f(x, y*(x)) over x, where y*(x) minimises g(x, ·).

    g must be strongly convex in y; add a ridge if it is not.

    Args:
        outer: f. Called as f(x, y), or as f(x, y, batch) when there are outer data.
        inner: g, likewise with the inner data. A loss on a batch should be the mean over its
            rows (plus terms without data), so that its expectation is the loss on all rows.
        x0, y0: where to start: each a tensor, a module, or a dict, tuple or list of such. The
            losses receive x and y in the same form, modules as modules to call. They are copied,
            never written to. Of a module, all parameters that require a gradient are variables, or
            those that `bilevel.parameters` chooses. y0 may also be a differentiable function of
            x: a learned initialisation, for `MAML`.
        outer_data, inner_data: None, or a tensor, an array, a CSR matrix, a tuple or dict of them,
            a map-style Dataset, or a stream: a DataLoader, an IterableDataset, or a function
            that makes an iterator of batches. `batch.data` holds the data of some rows, and
            `batch.index` the rows' numbers. With a stream, each call of the loss sees the next
            batch, whatever batch size a method asks for; at its end it starts over.
        tasks: None, or how many rows an outer step sees, if rows are tasks, each with an inner and
            an outer part (`Tasks`).
        model: None, or what is known about the losses (`bilevel.models`): a faster oracle,
            constants. Functions such as `bilevel.softmax_problem` set it.

    Raises:
        ValueError, TypeError: the losses, the data and the starting point do not fit together;
            the losses are tried once, on a few rows.

    Example:
        Ridge regression with a learned penalty.

        >>> import torch, bilevel
        >>> A = torch.tensor([[1.0, 0.0], [0.0, 2.0]]); b = torch.tensor([1.0, 1.0])
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((A @ y - b) ** 2).sum() + x.exp() * (y @ y),
        ...     x0=torch.tensor(0.0), y0=torch.zeros(2),
        ... )
        >>> problem
        Problem(x: 1 number, y: 2 numbers, torch.float32)
    """

    def __init__(
        self,
        outer: Loss,
        inner: Loss,
        x0: Variables,
        y0: Variables | Callable[[Variables], Variables],
        outer_data: Any = None,
        inner_data: Any = None,
        tasks: Tasks | None = None,
        model: Model | None = None,
    ) -> None:
        for name, loss in (("outer", outer), ("inner", inner)):
            if not callable(loss):
                raise TypeError(
                    f"{name} must be a function, got {type(loss).__name__} {quoted(loss)}"
                )
        if tasks is not None:
            instance("tasks", tasks, Tasks, "bilevel.Tasks(batch=16)")
        if model is not None:
            instance("model", model, Model, "an object of a subclass of bilevel.Model")
        self.outer, self.inner, self.tasks, self.model = outer, inner, tasks, model
        self.x_structure = Structure("x0", x0)
        self.start_of_y = y0 if callable(y0) and not isinstance(y0, nn.Module) else None
        if self.start_of_y is not None:
            y0 = self.start_of_y(self.x_structure.unflatten(self.x_structure.flatten(x0)))
        self.y_structure = Structure("y0", y0)
        self.dtype, self.device = self.x_structure.dtype, self.x_structure.device
        _check_same(self.x_structure, self.y_structure)
        self.x0, self.y0 = self.x_structure.point(x0), self.y_structure.point(y0)
        self.outer_data = None if outer_data is None else as_data("outer_data", outer_data)
        self.inner_data = None if inner_data is None else as_data("inner_data", inner_data)
        self.peers: Peers = Alone()
        self.whole_identity: dict[str, str] | None = None  # where the rows are spread
        if tasks is not None:
            _check_tasks(tasks, self.inner_data, self.outer_data)
        modules = self.x_structure.modules | self.y_structure.modules
        self.networks = Networks(modules) if modules else None
        if self.networks is not None:
            self.networks.counters = set()
        self.buffers = {} if self.networks is None else self.networks.buffers
        self._modules = modules_of(outer, inner)
        self.chance = Chance(self.device, self._generators(), ["torch"] * self.has_dropout())
        self.moment = Moment(0, 0, self.buffers)
        for _ in self.chance.rounds():
            with _TRIAL, self.untouched(0), self.chance.every().seeded(0), self.chance.watched():
                self._try_losses()
        if self.networks is not None:
            counters, self.networks.counters = self.networks.counters, None
            if counters:
                warnings.warn(
                    f"a call changes {', '.join(sorted(counters))}, which is set back after it, so "
                    "that steps can be repeated: what must last, register as a buffer",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _generators(self) -> list[Held]:
        """The random generators that the losses, the modules or the rows hold."""
        data = [d for d in (self.outer_data, self.inner_data) if d is not None and not d.is_stream]
        nets = [] if self.networks is None else self.networks.all()
        return generators_of(self.outer, self.inner, *nets, *(d for d in data if not d.is_fixed))

    def buffers_now(self) -> Buffers:
        """As the calls so far have left them; of several processes, the mean."""
        return self.peers.mean(self.moment.state())

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        """y0 as a function of flat x, if it was given as one; else y."""
        if self.start_of_y is None:
            return y
        return self.y_structure.join(self.start_of_y(self.x_structure.unflatten(x)))

    def __repr__(self) -> str:
        sizes = {"x": self.x_structure.size, "y": self.y_structure.size}
        counts = [f"{name}: {n:,} number{'s' * (n != 1)}" for name, n in sizes.items()]
        for name, data in (("outer_data", self.outer_data), ("inner_data", self.inner_data)):
            if data is not None:
                counts.append(f"{name}: {'a stream' if data.is_stream else f'{len(data):,} rows'}")
        return f"Problem({', '.join(counts)}, {self.dtype})"

    def _try_losses(self) -> None:
        """Both losses must run at the start, and depend on the variables."""
        uses_x = self.start_of_y is not None
        for name, data, loss in (
            ("outer", self.outer_data, self.outer_loss),
            ("inner", self.inner_data, self.inner_loss),
        ):
            x, y = (start.clone().requires_grad_() for start in (self.x0, self.y0))
            # The graph tells what a loss depends on, without any derivative.
            value = self._try(name, data, loss, x, y)
            self.is_coarse |= is_coarse(value)
            if not leads_to(value, y):
                raise ValueError(
                    f"the {name} loss does not depend on y (as far as autograd sees), so there is "
                    "nothing to optimise. Use the y that the loss is given, and do not detach it."
                )
            uses_x = uses_x or leads_to(value, x)
            for variable, given, start in (("x", x, self.x0), ("y", y, self.y0)):
                if not torch.equal(given, start):
                    raise ValueError(
                        f"the {name} loss writes into the {variable} that it is given (through "
                        ".data?): let it compute with a changed copy, such as w.clamp(min=0)"
                    )
            try:
                with torch.no_grad():
                    loss(self.x0, self.y0, _few(data))
            except RuntimeError:
                self.slopes_inside = {*self.slopes_inside, name}
            if data is not None and data.is_fixed:
                self._refuse_writing(name, data)
        if not uses_x:
            raise ValueError(
                "neither loss depends on x (as far as autograd sees): x0 needs no gradient, and "
                "the hypergradient is zero. Use the x that the losses are given, and do not "
                "detach it. If x is for rates of bilevel.updates.Learned alone, add 0 * x.sum() "
                "to the outer loss."
            )

    def _refuse_writing(self, name: str, data: Source) -> None:
        """A batch of all rows may be the user's own data."""
        draw = self.draw(name, _few(data))
        batch = draw.batch(data, self.chance)
        before = digest_of_data(batch.data)
        draw = Draw(draw.rows, draw.number, draw.buffers, batch)
        self.value(name, self.x0.clone(), self.y0.clone(), draw)
        if digest_of_data(batch.data) != before:
            raise ValueError(
                f"the {name} loss writes into batch.data, which may be your own data: let it "
                "compute with a changed copy, such as batch.data * 2 in place of batch.data.mul_(2)"
            )

    def _try(self, name: str, data: Source | None, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        try:
            with torch.enable_grad():
                value = loss(x, y, _few(data))
            for node in nodes(value):
                refuse_hidden(node)
            if self.networks is not None:
                refuse_recomputed(value)
        except (LossError, UserError):
            raise
        except Exception as error:
            called = f"{name}(x, y{', batch' * (data is not None)})"
            raise ValueError(
                f"the {name} loss failed at x0, y0 when called as {called}: "
                f"{type(error).__name__}: {error}\n"
                f"x0 and y0 are {self.dtype} on {self.device}; the data must match in dtype, "
                "device and shape. A loss is given a batch only if it has data; its rows are "
                "batch.data." + _WRITES * ("inplace" in str(error))
            ) from error
        if value.dtype != self.dtype:
            raise ValueError(
                f"the {name} loss is {value.dtype} but x0 and y0 are {self.dtype}: convert the "
                "data or the variables, so that all share one dtype."
                + " Inside autocast, take the loss of net(...).float()."
                * bool(mixed(value.dtype))
            )
        if not torch.isfinite(value):
            lost = ", or a module uses a tensor that is no parameter or buffer (kept in a list?)"
            raise ValueError(
                f"the {name} loss is {value.item()} at x0, y0: start elsewhere"
                + lost * (self.networks is not None)
            )
        return value


def _few(data: Source | None) -> Rows:
    return None if data is None or data.is_stream else torch.arange(min(len(data), 4))


def _check_same(x: Structure, y: Structure) -> None:
    if x.dtype != y.dtype or x.device != y.device:
        raise ValueError(
            f"x0 is {x.dtype} on {x.device} but y0 is {y.dtype} on {y.device}: they must share "
            "one dtype and one device. Convert one with .to(...)." + mixed(x.dtype, y.dtype)
        )
    if x.device.type == "meta":
        raise ValueError("x0 and y0 are on device meta, which holds no values: use a real one")


def _check_tasks(tasks: Tasks, inner: Source | None, outer: Source | None) -> None:
    rows = [None if data is None else data.count for data in (inner, outer)]
    if rows[0] is None or rows[0] != rows[1] or tasks.batch > rows[0]:
        raise ValueError(
            f"tasks.batch = {tasks.batch} rows of both losses' data: inner_data have {rows[0]} "
            f"rows and outer_data {rows[1]}, but they must have the same number, at least that many"
        )
