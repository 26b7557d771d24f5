"""A bilevel problem: two losses, their data, and where to start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.arguments import instance, positive_integer
from bilevel.problem.isolation import modules_of, untouched
from bilevel.problem.model import Model
from bilevel.problem.peers import Alone, Peers
from bilevel.problem.sources import Rows, Source, as_source
from bilevel.problem.structure import Structure, Variables

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Tasks:
    """Rows are tasks, which both losses share: `Problem(..., tasks=Tasks(batch=16))`.

    Args:
        batch: how many tasks both losses see at an outer step: the first ones at the first step,
            the next ones at the next, and so on, cyclically.
        chunk: None, or how many of them are worked on at a time: less memory, and for large models
            less time. Only where g is a sum and f a mean over tasks, and each task has inner
            variables of its own.
    """

    batch: int
    chunk: int | None = None

    def __post_init__(self) -> None:
        positive_integer("batch", self.batch)
        if self.chunk is not None:
            positive_integer("chunk", self.chunk)


class LossError(ValueError):
    """A loss gave something other than one number."""


class Problem:
    """Minimise Φ(x) = f(x, y*(x)) over x, where y*(x) minimises g(x, ·).

    g must be strongly convex in y; add a ridge if it is not.

    Args:
        outer: f. Called as f(x, y), or as f(x, y, batch) when there are outer data.
        inner: g, likewise with the inner data. A loss on a batch should be the mean over its
            rows (plus terms without data), so that its expectation is the loss on all rows.
        x0, y0: where to start: each a tensor, or a dict, tuple or list of tensors. The losses
            receive x and y in the same form. They are copied, never written to. y0 may also be a
            differentiable function of x: a learned initialisation, for `MAML`.
        outer_data, inner_data: None, or a tensor, an array, a CSR matrix, a tuple of them, or a
            map-style Dataset. `batch.data` is what the data gave for some rows, and
            `batch.index` the rows' numbers.
        tasks: None, or how many rows an outer step sees, where rows are tasks with an inner and an
            outer part each (`Tasks`).
        model: None, or what is known of the losses (`bilevel.models`): a faster oracle, constants.
            Functions such as `bilevel.softmax_problem` set it.

    Raises:
        ValueError, TypeError: if the losses, the data and the starting point do not fit; the
            losses are tried once, on a few rows.

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
                raise TypeError(f"{name} must be a function, got {type(loss).__name__} {loss!r}")
        if tasks is not None:
            instance("tasks", tasks, Tasks, "bilevel.Tasks(batch=16)")
        if model is not None:
            instance("model", model, Model, "an object of a subclass of bilevel.Model")
        self.outer, self.inner, self.tasks, self.model = outer, inner, tasks, model
        self.start_of_y = y0 if callable(y0) else None
        y0 = y0(x0) if callable(y0) else y0
        self.x_structure, self.y_structure = Structure("x0", x0), Structure("y0", y0)
        self.dtype, self.device = self.x_structure.dtype, self.x_structure.device
        _check_same(self.x_structure, self.y_structure)
        self.x0, self.y0 = self.x_structure.point(x0), self.y_structure.point(y0)
        self.outer_data = None if outer_data is None else as_source("outer_data", outer_data)
        self.inner_data = None if inner_data is None else as_source("inner_data", inner_data)
        self.peers: Peers = Alone()
        self.whole_identity: dict[str, str] | None = None  # where the rows are spread
        if tasks is not None:
            _check_tasks(tasks, self.inner_data, self.outer_data)
        self._modules = modules_of(outer, inner)
        with self.untouched(seed=0):
            self._try_losses()

    def untouched(self, seed: int) -> AbstractContextManager[None]:
        """Evaluate the losses inside: random draws are seeded, and no trace is left behind."""
        return untouched(self._modules, self.device, seed)

    def outer_loss(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """f on flat x and y."""
        x = x if self.x_structure.is_flat else self.x_structure.unflatten(x)
        y = y if self.y_structure.is_flat else self.y_structure.unflatten(y)
        data = self.outer_data
        value = self.outer(x, y) if data is None else self.outer(x, y, data.batch(rows))
        return value if type(value) is Tensor and not value.shape else _one_number("outer", value)

    def inner_loss(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """g on flat x and y."""
        x = x if self.x_structure.is_flat else self.x_structure.unflatten(x)
        y = y if self.y_structure.is_flat else self.y_structure.unflatten(y)
        data = self.inner_data
        value = self.inner(x, y) if data is None else self.inner(x, y, data.batch(rows))
        return value if type(value) is Tensor and not value.shape else _one_number("inner", value)

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        """y0 as a function of flat x, if it was given as one; else y."""
        if self.start_of_y is None:
            return y
        return self.y_structure.join(self.start_of_y(self.x_structure.unflatten(x)))

    def __repr__(self) -> str:
        sizes = {"x": self.x_structure.size, "y": self.y_structure.size}
        counts = [f"{name}: {n:,} number{'s' * (n != 1)}" for name, n in sizes.items()]
        for name, data in (("outer_data", self.outer_data), ("inner_data", self.inner_data)):
            counts += [f"{name}: {len(data):,} rows"] if data is not None else []
        return f"Problem({', '.join(counts)}, {self.dtype})"

    def _try_losses(self) -> None:
        """Both losses must run at the start, and depend on what they are differentiated by."""
        uses_x = self.start_of_y is not None
        for name, data, loss in (
            ("outer", self.outer_data, self.outer_loss),
            ("inner", self.inner_data, self.inner_loss),
        ):
            x, y = self.x0.clone(), self.y0.clone()
            # Whether a graph is left tells what a loss depends on, with no derivative taken.
            if not self._try(name, data, loss, x, y.clone().requires_grad_()).requires_grad:
                raise ValueError(
                    f"the {name} loss does not depend on y (as far as autograd sees), so there is "
                    "nothing to optimise. Use the y that the loss is given, and do not detach it."
                )
            uses_x = uses_x or self._try(name, data, loss, x.requires_grad_(), y).requires_grad
        if not uses_x:
            raise ValueError(
                "neither loss depends on x (as far as autograd sees): x0 needs no gradient, and "
                "the hypergradient is zero. Use the x that the losses are given, and do not "
                "detach it."
            )

    def _try(self, name: str, data: Source | None, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        rows = None if data is None else torch.arange(min(len(data), 4))
        try:
            with torch.enable_grad():
                value = loss(x, y, rows)
        except LossError:
            raise
        except Exception as error:
            called = f"{name}(x, y{', batch' * (data is not None)})"
            raise ValueError(
                f"the {name} loss failed at x0, y0 when called as {called}: "
                f"{type(error).__name__}: {error}\n"
                f"x0 and y0 are {self.dtype} on {self.device}; the data must match in dtype, "
                "device and shape. A loss is given a batch only if it has data."
            ) from error
        if value.dtype != self.dtype:
            raise ValueError(
                f"the {name} loss is {value.dtype} but x0 and y0 are {self.dtype}: convert the "
                "data or the variables, so that all share one dtype."
            )
        if not torch.isfinite(value):
            raise ValueError(f"the {name} loss is {value.item()} at x0, y0: start elsewhere")
        return value


def _one_number(name: str, value: object) -> Tensor:
    """A loss as a tensor without dimensions."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.reshape(())
    what = tuple(value.shape) if isinstance(value, Tensor) else repr(value)
    raise LossError(
        f"the {name} loss must return one number as a tensor, got {what}. "
        "Reduce it, for example with .mean()."
    )


def _check_same(x: Structure, y: Structure) -> None:
    if x.dtype != y.dtype or x.device != y.device:
        raise ValueError(
            f"x0 is {x.dtype} on {x.device} but y0 is {y.dtype} on {y.device}: they must share "
            "one dtype and one device. Convert one with .to(...)."
        )
    if x.device.type == "meta":
        raise ValueError("x0 and y0 are on device meta, which holds no values: use a real one")


def _check_tasks(tasks: Tasks, inner: Source | None, outer: Source | None) -> None:
    rows = [None if data is None else len(data) for data in (inner, outer)]
    if rows[0] is None or rows[0] != rows[1] or tasks.batch > rows[0]:
        raise ValueError(
            f"tasks.batch = {tasks.batch} rows of both losses' data: inner_data have {rows[0]} "
            f"rows and outer_data {rows[1]}, but they must have the same number, at least that many"
        )
