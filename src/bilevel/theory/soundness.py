"""Whether what autograd says of two losses agrees with their values nearby."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from bilevel.errors import UserError
from bilevel.numerics.vectors import norm
from bilevel.oracles import Oracle, Views
from bilevel.problem.problem import Problem

T = TypeVar("T")

_OFF, _COARSE = 1e-5, 0.1  # relative errors of a wrong derivative: in double precision, in single
_NOISE = 100  # times what rounding does to a difference
_WRONG = "detaches something that depends on it, or a backward of its own is wrong"


def directions(like: Tensor, count: int, seed: int) -> Tensor:
    """Random vectors of length one."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, like.numel(), generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=1).to(like)


def width(at: Tensor) -> float:
    """The best one for central differences, as far as rounding goes."""
    best: float = float(torch.finfo(at.dtype).eps) ** (1 / 3)
    return best * max(1.0, norm(at))


def differences(
    function: Callable[[Tensor], Tensor], at: Tensor, along: Iterable[Tensor], share: float = 1.0
) -> Tensor:
    """Central differences along some directions, at a share of the best width."""
    h = share * width(at)
    return torch.stack([(function(at + h * d) - function(at - h * d)) / (2 * h) for d in along])


def bends(function: Callable[[Tensor], Tensor], at: Tensor, along: Iterable[Tensor]) -> Tensor:
    """By how much the slopes to both sides differ: at a kink they do, however small the width."""
    h, here = width(at), function(at)
    return torch.stack(
        [(function(at + h * d) + function(at - h * d) - 2 * here) / h for d in along]
    )


@dataclass(frozen=True)
class Soundness:
    """The losses around a point; each evaluation draws what the first has drawn.

    Args:
        problem: whose losses.
        x, y: the point, flat.
        seed: of all draws.
    """

    problem: Problem
    x: Tensor
    y: Tensor
    seed: int

    def doubts(self) -> Iterator[str]:
        """What is wrong with the losses or their derivatives, in words."""
        first, again = self._values(), self._values()
        slope = self._look(lambda oracle: oracle.inner(self.x, self.y).gradient())
        for name, value, moved in (
            ("inner", first[0] + 0 * slope.sum(), again[0]),
            ("outer", first[1], again[1]),
        ):
            if not value.isfinite():
                yield (
                    f"the {name} loss or its gradient is not finite at y0: it may have a square "
                    "root or a norm at zero, or a logarithm of zero; add a small number inside"
                )
            elif value != moved:
                yield (
                    f"the {name} loss has another value when it is called again at the same point "
                    "with the same draws: it counts its calls, or draws from what cannot be seeded"
                )
            else:
                continue
            return  # differences would say nothing
        yield from self._wrong_slopes(slope)

    def _wrong_slopes(self, slope: Tensor) -> Iterator[str]:
        x, y = self.x, self.y
        u, v = directions(x, 1, self.seed)[0], directions(y, 1, self.seed)[0]
        of_f = self._look(lambda oracle: oracle.outer(x, y).value())
        with suppress(UserError):  # where g has no second derivatives, none can be wrong
            hvp, cross = self._look(lambda oracle: self._products(oracle, v))
            if self._is_off(lambda y: self._inner_slope(x, y), y, v, hvp, slope):
                yield (
                    "the inner gradient moves with y by more than its derivative says: g detaches "
                    "something that depends on y, which is held fixed when steps are differentiated"
                )
            if self._is_off(lambda x: self._inner_slope(x, y) @ v, x, u, cross @ u, slope):
                yield (
                    "the inner gradient moves with x by other than its derivative says: g " + _WRONG
                )
        f_x, f_y = self._look(self._outer_gradient)
        if self._is_off(lambda x: self._outer_value(x, y), x, u, f_x @ u, of_f):
            yield f"the outer loss moves with x by other than its gradient says: f {_WRONG}"
        if self._is_off(lambda y: self._outer_value(x, y), y, v, f_y @ v, of_f):
            yield f"the outer loss moves with y by other than its gradient says: f {_WRONG}"
        if not f_y.any():
            yield "the outer loss has no slope in y there, so that nothing passes through y"

    def _is_off(
        self,
        function: Callable[[Tensor], Tensor],
        at: Tensor,
        along: Tensor,
        said: Tensor,
        scale: Tensor,
    ) -> bool:
        """Whether a derivative is clearly another one, and not merely that of a kink nearby."""
        wide, narrow = (differences(function, at, [along], share)[0] for share in (1.0, 0.5))
        gap, eps = norm(wide - said), float(torch.finfo(at.dtype).eps)
        share = _OFF if at.dtype == torch.float64 else _COARSE
        floor = _NOISE * eps / width(at) * max(norm(scale), norm(wide))
        if gap <= share * norm(wide) + floor or norm(wide - narrow) > gap / 2:
            return False
        return norm(bends(function, at, [along])) < gap / 2

    def _look(self, act: Callable[[Oracle], T]) -> T:
        with self.problem.untouched(self.seed):
            return act(Views(self.problem, self.seed).at(0).whole)

    def _values(self) -> Tensor:
        return self._look(
            lambda oracle: torch.stack(
                [oracle.inner(self.x, self.y).value(), oracle.outer(self.x, self.y).value()]
            )
        )

    def _inner_slope(self, x: Tensor, y: Tensor) -> Tensor:
        return self._look(lambda oracle: oracle.inner(x, y).gradient())

    def _outer_value(self, x: Tensor, y: Tensor) -> Tensor:
        return self._look(lambda oracle: oracle.outer(x, y).value())

    def _products(self, oracle: Oracle, v: Tensor) -> tuple[Tensor, Tensor]:
        hvp, cross = oracle.linearize(self.x, self.y).both(v)
        return hvp, oracle.pull(self.x, cross)

    def _outer_gradient(self, oracle: Oracle) -> tuple[Tensor, Tensor]:
        of_x, of_y = oracle.outer(self.x, self.y).gradient()
        return oracle.pull(self.x, of_x), of_y
