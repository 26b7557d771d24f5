"""The narrow waist: everything that a method may ask of a problem.

A point is (x, y, rows). It is cheap to create, and costs are incurred when it is used: an `Outer`
point for f and its gradients, an `Inner` point for g and its gradients, a `Linear` point for many
products with the Hessian of g. All vectors are flat. `rows` names rows of the inner data (of the
outer data for f); None stands for all of them.

Derivatives in x are covectors, which can be added; `pull` makes a vector of x from their sum.
For most oracles the two are the same. Where x enters through features (a few-shot embedding),
covectors belong to the features, and the backward pass through the network is paid for once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from bilevel.oracles.prices import Price
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows

Done = TypeVar("Done")


class Outer(ABC):
    """f at a point."""

    @abstractmethod
    def value(self) -> Tensor:
        """f(x, y)."""

    @abstractmethod
    def gradient(self) -> tuple[Tensor, Tensor]:
        """(∇x f, ∇y f), the first a covector."""


class Inner(ABC):
    """g at a point."""

    @abstractmethod
    def value(self) -> Tensor:
        """g(x, y)."""

    @abstractmethod
    def gradient(self) -> Tensor:
        """∇y g(x, y)."""

    def value_and_gradient(self) -> tuple[Tensor, Tensor]:
        """(g, ∇y g), which may share work: for solvers with a line search."""
        return self.value(), self.gradient()

    @abstractmethod
    def gradient_x(self) -> Tensor:
        """∇x g(x, y), a covector: what value-function methods are made of."""

    def gradients(self) -> tuple[Tensor, Tensor]:
        """(∇x g, ∇y g), the first a covector, which may share work."""
        return self.gradient_x(), self.gradient()


class Linear(Inner):
    """∇y g around a point: linearised once, for many products."""

    @abstractmethod
    def hvp(self, v: Tensor) -> Tensor:
        """∇²y g(x, y) v."""

    @abstractmethod
    def cross(self, v: Tensor) -> Tensor:
        """∇x∇y g(x, y) v, the covector of ∂/∂x ⟨∇y g(x, y), v⟩."""

    def both(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """(∇²y g v, ∇x∇y g v), which may share work."""
        return self.hvp(v), self.cross(v)

    def matrix(self) -> Tensor | None:
        """∇²y g(x, y) as a whole, where that is faster than by products."""
        return None

    def diagonal(self) -> Tensor:
        """The diagonal of ∇²y g(x, y), where it is cheap."""
        raise NotImplementedError(
            f"{type(self).__name__} knows no cheap diagonal of the Hessian: use no preconditioner, "
            "or give a diagonal as a tensor"
        )

    def inverse(self) -> Callable[[Tensor], Tensor]:
        """The best cheap approximation of v ↦ (∇²y g)⁻¹ v, symmetric and positive definite."""
        found = self.inverse_from(self.sketch())
        if found is None:
            diagonal = self.diagonal()
            return lambda v: v / diagonal
        return found

    def sketch(self) -> Tensor:
        """All numbers that `inverse` needs from the rows, flat. As for g, those of all rows are the
        mean (over tasks the sum) of those of parts: several processes get the inverse of one.
        """
        # `bilevel.linear.if_known` catches this: having no inverse is not an error.
        raise NotImplementedError(
            f"{type(self).__name__} knows no cheap inverse of the Hessian: use no preconditioner, "
            "or give a diagonal as a tensor"
        )

    def inverse_from(self, sketch: Tensor) -> Callable[[Tensor], Tensor] | None:
        """The inverse that a sketch describes; None leaves it to the diagonal."""
        return None


class Start(ABC):
    """Where the inner steps start, as a function of x."""

    @abstractmethod
    def point(self) -> Tensor:
        """y^0(x)."""

    @abstractmethod
    def pull(self, r: Tensor) -> Tensor:
        """The covector of ∂/∂x ⟨y^0(x), r⟩."""


class FixedStart(Start):
    """y^0 does not depend on x."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x, y

    def point(self) -> Tensor:
        return self._y

    def pull(self, r: Tensor) -> Tensor:
        return torch.zeros_like(self._x)


class RidgeTerm(NamedTuple):
    """½ Σ_a c_a(x) y_a², a part of g that belongs to no row.

    Args:
        c: the coefficients, flat like y.
        of_x: Σ_a ∂c_a(x)/∂x w_a, a vector of x, given c∘w.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.eye(2).double(), torch.tensor([0, 1])
        >>> problem = bilevel.softmax_problem(rows, rows, penalty=bilevel.PerFeature(scale=0.5))
        >>> bilevel.oracles.make(problem).ridge(problem.x0).c  # exp(0), for each entry of W
        tensor([1., 1., 1., 1.], dtype=torch.float64)
    """

    c: Tensor
    of_x: Callable[[Tensor], Tensor]


class Plan(ABC, Generic[Done]):
    """A whole loop as data: see `bilevel.oracles.plans`."""

    @abstractmethod
    def plainly(self, oracle: Oracle) -> Done:
        """Carry it out point by point."""

    @abstractmethod
    def bill(self) -> list[tuple[Price, Rows]]:
        """What it computes, and on which rows."""


class Oracle(ABC):
    """Points of a bilevel problem, on flat vectors.

    Example:
        >>> import torch
        >>> from bilevel.oracles import make
        >>> from bilevel.problem.examples import halves
        >>> oracle, x, y = make(halves()), torch.zeros(2), torch.zeros(2)
        >>> oracle.outer(x, y).gradient()
        (tensor([0., 0.]), tensor([-2., -2.]))
        >>> oracle.inner(x, torch.ones(2)).gradient()
        tensor([2., 2.])
        >>> oracle.linearize(x, y).hvp(torch.ones(2))
        tensor([2., 2.])
    """

    x_size: int
    y_size: int
    inner_rows: int | None  # rows of the data of g, None without data
    outer_rows: int | None
    seed: int
    dtype: torch.dtype
    device: torch.device
    is_coarse = False  # whether the losses compute in half precision
    is_random = False  # whether the losses draw random numbers, such as the masks of dropout
    is_stream = False  # whether each call reads the next batch

    @property
    def linear_bytes(self) -> int | None:
        """The memory a linearisation takes, as last seen; None for closed forms, cheap to redo."""
        return None

    @abstractmethod
    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        """f at (x, y)."""

    @abstractmethod
    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        """g at (x, y)."""

    @abstractmethod
    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        """∇y g around (x, y), ready for products."""

    def again(self, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Linear]:
        """A function that linearises again, at any y, what a point made at x on these rows saw.

        It uses the same rows and, for losses that draw or have buffers, the same draws and the
        original buffers: so ITD differentiates the very step that was taken.
        """
        return lambda y: self.linearize(x, y, rows)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        """The derivative in x that a covector stands for."""
        # The losses see x itself: a covector is already a vector of x.
        return covector

    def start(self, x: Tensor, y: Tensor, rows: Rows = None) -> Start:
        """Where the inner steps start: at y, unless the problem makes it depend on x."""
        return FixedStart(x, y)

    def ridge(self, x: Tensor) -> RidgeTerm | None:
        """The part of g that belongs to no row, if the model knows it."""
        return None

    def accelerate(self, plan: Plan[Any]) -> Any:
        """The outcome of a whole plan, found faster; None leaves it to the plan's plain form."""
        return None

    def streams(self, step: int) -> Streams:
        """The random choices of outer step `step`."""
        # Determined by seed and step: a resumed run draws the same rows as an uninterrupted one.
        return Streams(self.seed, step, self.inner_rows, self.outer_rows)


class Forwarding(Oracle):
    """An oracle around another: a wrapper overrides what it changes."""

    def __init__(self, oracle: Oracle) -> None:
        # `accelerate` is not forwarded: a fast form of the wrapped oracle would bypass the wrapper.
        self.oracle = oracle
        self.x_size, self.y_size = oracle.x_size, oracle.y_size
        self.inner_rows, self.outer_rows = oracle.inner_rows, oracle.outer_rows
        self.seed, self.dtype, self.device = oracle.seed, oracle.dtype, oracle.device
        self.is_random, self.is_stream = oracle.is_random, oracle.is_stream
        self.is_coarse = oracle.is_coarse

    @property
    def linear_bytes(self) -> int | None:
        return self.oracle.linear_bytes

    def rows(self, rows: Rows) -> Rows:
        """The rows of g as the wrapped oracle numbers them."""
        return rows

    def rows_of_f(self, rows: Rows) -> Rows:
        """Those of f: the same ones, unless a wrapper says otherwise."""
        return self.rows(rows)

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return self.oracle.outer(x, y, self.rows_of_f(rows))

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return self.oracle.inner(x, y, self.rows(rows))

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return self.oracle.linearize(x, y, self.rows(rows))

    def again(self, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Linear]:
        return self.oracle.again(point, x, self.rows(rows))

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        return self.oracle.pull(x, covector, self.rows(rows))

    def start(self, x: Tensor, y: Tensor, rows: Rows = None) -> Start:
        return self.oracle.start(x, y, self.rows(rows))
