"""The oracle of any two losses, by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bilevel.oracles.arrivals import Arrivals
from bilevel.oracles.derivatives import derivatives, measured
from bilevel.oracles.plans import Descend
from bilevel.oracles.points import Inner, Linear, Oracle, Outer, Plan, Start
from bilevel.oracles.twice import refuse_wrong, told
from bilevel.problem.draws import Draw
from bilevel.problem.losses import Losses
from bilevel.problem.networks import Buffers
from bilevel.problem.sources import Rows
from bilevel.problem.structure import refuse_inference_mode


class AutogradOracle(Oracle):
    """Serves every problem. Variables that a loss does not use have zero derivatives.

    Vectors are flat outside. Inside, derivatives are taken with respect to the user's own tensors:
    views of the flat vector, made leaves. Splitting it would copy it all in each backward pass.

    Example:
        >>> import torch
        >>> from bilevel.oracles import AutogradOracle
        >>> from bilevel.problem.examples import halves
        >>> AutogradOracle(halves()).inner(torch.ones(2), torch.ones(2)).gradient()
        tensor([-2., -2.])
    """

    def __init__(self, problem: Losses, seed: int = 0) -> None:
        refuse_inference_mode()
        self.problem, self.seed = problem, seed
        self.x_size, self.y_size = problem.x_structure.size, problem.y_structure.size
        data = problem.inner_data, problem.outer_data
        self.inner_rows, self.outer_rows = (None if d is None else d.count for d in data)
        self.dtype, self.device = problem.dtype, problem.device
        self.is_random, self.is_coarse = bool(problem.chance.names), problem.is_coarse
        self.is_stream = any(d is not None and d.is_stream for d in data)
        self._linear_bytes, self._measures, self._looked = 0, False, False

    @property
    def linear_bytes(self) -> int | None:
        # Only a caller that will keep linearisations asks: the first of them is measured.
        self._measures = self._measures or not self._linear_bytes
        return self._linear_bytes

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _Outer(self.problem, x, y, self.problem.draw("outer", rows))

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return _Inner(self.problem, x, y, self.problem.draw("inner", rows))

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        draw = self.problem.draw("inner", rows)
        looked, self._looked = self._looked, True  # once: a loss does not change
        if not self._measures:
            return _Linear(self.problem, x, y, draw, looks=not looked)
        made = _Linear(self.problem, x, y, draw, looks=not looked)
        _, held = measured(made.make)
        # The others will be about as large; a linear loss saves nothing.
        self._linear_bytes, self._measures = max(1, held), False
        return made

    def again(self, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Linear]:
        assert isinstance(point, _Inner)
        # Not the point itself, which holds its y.
        problem, draw = self.problem, point.draw
        return lambda y: _Linear(problem, x, y, draw, moves=False)

    def accelerate(self, plan: Plan[Any]) -> Any:
        """Gradient steps on leaves that move: no points, no copies of y."""
        if not isinstance(plan, Descend):
            return None
        problem = self.problem
        structure = problem.y_structure
        # The one copy: from here on y moves in place, and the caller's y stays as it is.
        y, xs = plan.y.clone(), problem.held("inner", problem.x_structure, plan.x)
        for rows, lr in plan.steps:
            if plan.look is not None:
                plan.look()
            ys, moved = structure.leaves(y), structure.views(y)
            with torch.enable_grad():
                value, after = problem.call("inner", xs, ys, problem.draw("inner", rows))
            problem.moment.buffers = after
            # If the loss does not use y, there is no gradient to take. The graph is freed before
            # `sub_` writes: nothing it has saved is overwritten while in use.
            for part, slope in zip(moved, derivatives([value], ys), strict=True):
                part.sub_(slope, alpha=lr)
        return y

    def start(self, x: Tensor, y: Tensor, rows: Rows = None) -> Start:
        return _Start(self.problem, x, y)


class _Outer(Outer):
    def __init__(self, problem: Losses, x: Tensor, y: Tensor, draw: Draw) -> None:
        self._problem, self._x, self._y, self._draw = problem, x, y, draw

    def value(self) -> Tensor:
        return self._problem.value("outer", self._x, self._y, self._draw)

    def gradient(self) -> tuple[Tensor, Tensor]:
        # Changes that f makes to statistics are dropped: only training, on g, moves them.
        return _gradients(self._problem, "outer", self._x, self._y, self._draw)[0]


@torch.enable_grad()
def _gradients(
    problem: Losses, name: str, x: Tensor, y: Tensor, draw: Draw
) -> tuple[tuple[Tensor, Tensor], Buffers]:
    """A loss's gradients in x and y, and the modules' buffers after the call."""
    of_x, of_y = problem.x_structure, problem.y_structure
    xs, ys = of_x.leaves(x), of_y.leaves(y)
    arrivals = Arrivals(of_y, ys, y).expect()
    value, after = problem.call(name, xs, arrivals.given, draw)
    found = derivatives([value], [*xs, *ys])
    return (of_x.flat(found[: len(xs)], x), arrivals.vector(found[len(xs) :])), after


class _Inner(Inner):
    """Keeps no graph: each call costs one evaluation of g."""

    def __init__(self, problem: Losses, x: Tensor, y: Tensor, draw: Draw) -> None:
        self._problem, self._x, self._y, self.draw = problem, x, y, draw

    def value(self) -> Tensor:
        return self._problem.value("inner", self._x, self._y, self.draw)

    def gradient(self) -> Tensor:
        return self.value_and_gradient()[1]

    def value_and_gradient(self) -> tuple[Tensor, Tensor]:
        problem, structure = self._problem, self._problem.y_structure
        # x has no leaves here: no graph is built for derivatives that nobody asked for.
        xs, ys = problem.held("inner", problem.x_structure, self._x), structure.leaves(self._y)
        arrivals = Arrivals(structure, ys, self._y).expect()
        with torch.enable_grad():
            value, problem.moment.buffers = problem.call("inner", xs, arrivals.given, self.draw)
        return value.detach(), arrivals.vector(derivatives([value], ys))

    def gradients(self) -> tuple[Tensor, Tensor]:
        problem = self._problem
        found, problem.moment.buffers = _gradients(problem, "inner", self._x, self._y, self.draw)
        return found

    @torch.enable_grad()
    def gradient_x(self) -> Tensor:
        problem, structure = self._problem, self._problem.x_structure
        xs, ys = structure.leaves(self._x), problem.held("inner", problem.y_structure, self._y)
        value, _ = problem.call("inner", xs, ys, self.draw)
        return structure.flat(derivatives([value], xs), self._x)


class _Linear(_Inner, Linear):
    """One graph of ∇y g, made when first needed; each product is one backward pass."""

    _xs: list[Tensor]
    _ys: list[Tensor]

    def __init__(
        self,
        problem: Losses,
        x: Tensor,
        y: Tensor,
        draw: Draw,
        moves: bool = True,
        looks: bool = False,
    ) -> None:
        super().__init__(problem, x, y, draw)
        self._moves, self._looks, self._made = moves, looks, False

    @torch.enable_grad()
    def make(self) -> None:
        """Build the graph, if there is none yet."""
        if self._made:
            return
        problem = self._problem
        self._xs = problem.x_structure.leaves(self._x)
        self._ys = problem.y_structure.leaves(self._y)
        self._products = Arrivals(problem.y_structure, self._ys, self._y)
        value, self._after = problem.call("inner", self._xs, self._products.given, self.draw)
        self._value, self._made = value.detach(), True
        if self._looks:
            refuse_wrong(value)
        with told():
            self._slopes = derivatives([value], self._ys, create_graph=True)

    def value(self) -> Tensor:
        self.make()
        return self._value

    def value_and_gradient(self) -> tuple[Tensor, Tensor]:
        self.make()
        if self._moves:  # as a step would; once, and not when a step is repeated
            self._problem.moment.buffers, self._moves = self._after, False
        return self._value, self._problem.y_structure.flat(self._slopes, self._y)

    def hvp(self, v: Tensor) -> Tensor:
        self.make()
        # A backward pass gives v'H, which is H v because H is symmetric.
        return self._products.expect().vector(self._backward(v, self._ys))

    def cross(self, v: Tensor) -> Tensor:
        self.make()
        return self._problem.x_structure.flat(self._backward(v, self._xs), self._x)

    def both(self, v: Tensor) -> tuple[Tensor, Tensor]:
        self.make()
        products, count = self._products.expect(), len(self._ys)
        found = self._backward(v, [*self._ys, *self._xs])
        of_x = self._problem.x_structure.flat(found[count:], self._x)
        return products.vector(found[:count]), of_x

    def _backward(self, v: Tensor, variables: list[Tensor]) -> list[Tensor]:
        along = self._problem.y_structure.views(v)
        with told():
            # The graph is kept for the next product of the same solve. Parts of y that enter g
            # linearly and without x have no derivative.
            return derivatives(self._slopes, variables, along, retain_graph=True)


class _Start(Start):
    def __init__(self, problem: Losses, x: Tensor, y: Tensor) -> None:
        self._problem, self._x, self._y = problem, x, y

    def point(self) -> Tensor:
        with torch.no_grad():
            return self._problem.start(self._x, self._y)

    @torch.enable_grad()
    def pull(self, r: Tensor) -> Tensor:
        x = _leaf(self._x)
        # r also stands in for y, which a start that does not depend on x returns: slope zero.
        return derivatives([self._problem.start(x, r.detach()) @ r], [x])[0]


class Recording:
    """z = φ(x) with its graph, for one vector-Jacobian product; `bytes` is what the graph holds."""

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor) -> None:
        self._x = _leaf(x)
        with torch.enable_grad():
            self._z, self.bytes = measured(lambda: function(self._x))
        self.value = self._z.detach()

    def pull(self, covector: Tensor) -> Tensor:
        """(∂φ/∂x)' covector; this frees the graph."""
        return derivatives([self._z], [self._x], [covector])[0]


def _leaf(variable: Tensor) -> Tensor:
    return variable.detach().requires_grad_()
