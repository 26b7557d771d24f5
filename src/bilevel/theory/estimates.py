"""Constants of a problem around a point."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bilevel.arguments import natural, positive, positive_integer
from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.numerics.vectors import norm
from bilevel.oracles import Oracle, Views
from bilevel.problem.constants import Constant, Kind, Known
from bilevel.problem.problem import Problem
from bilevel.problem.sharding import Sharded
from bilevel.problem.structure import Variables
from bilevel.theory.constants import Constants


def estimate(
    problem: Problem,
    x: Variables,
    y: Variables,
    *,
    radius: float = 0.1,
    samples: int = 8,
    lanczos_steps: int = 40,
    seed: int = 0,
) -> Constants:
    """L, μ, M, ρ, τ and σ of a problem around (x, y).

    L and μ are the ends of the spectrum of ∇²y g by Lanczos, with an error estimate; the others
    are the largest of some sampled differences, which can miss the worst direction. What the
    problem's model knows (quadratics, softmax regression) replaces the estimates.

    Args:
        problem: the problem.
        x, y: where.
        radius: how far to go for differences, relative to ‖y‖ or ‖x‖ (or to 1, if that is greater).
        samples: the number of directions.
        lanczos_steps: the most Hessian-vector products for L and μ.
        seed: of the directions, and of the rows for σ.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(torch.diag(torch.tensor([1.0, 4.0]).double()), I, I[0], I, I[1])
        >>> constants = bilevel.theory.estimate(problem, I[0], I[0])
        >>> constants.mu.value, constants.L_g.value, str(constants.rho.kind)
        (1.0, 4.0, 'exact')
    """  # noqa: E501
    positive("radius", radius)
    positive_integer("samples", samples)
    positive_integer("lanczos_steps", lanczos_steps)
    seed = natural("seed", seed)
    oracle = Views(problem, seed).at(0).whole
    flat_x, flat_y = problem.x_structure.point(x), problem.y_structure.point(y)
    with problem.untouched(seed):
        known = _known(problem, flat_x, flat_y)
        around = _Neighbourhood(oracle, flat_x, flat_y, radius, samples, seed)
        spectrum = {} if known.keys() >= _SPECTRUM else around.spectrum(lanczos_steps)
        differences = {} if known.keys() >= _DIFFERENCES else around.differences()
        found = {**differences, "sigma": around.noise(), **spectrum, **known}
    return Constants(**found)


def _known(problem: Problem, x: Tensor, y: Tensor) -> Known:
    """What the model knows about all rows, even if each process has a part of them."""
    if problem.model is None:
        return {}
    if isinstance(problem, Sharded) and problem.has_part_of_model:
        return problem.model.joint_constants(x, y, problem.peers)
    return problem.model.constants(x, y)


_SPECTRUM = {"mu", "L_g"}
_DIFFERENCES = {"cross", "L_fx", "L_fy", "L_xx", "M", "rho", "tau", "tau_x"}


class _Neighbourhood:
    """Derivatives at a point and at points around it."""

    def __init__(
        self, oracle: Oracle, x: Tensor, y: Tensor, radius: float, samples: int, seed: int
    ) -> None:
        self._oracle, self._x, self._y = oracle, x, y
        self._samples, self._radius = samples, radius
        self._width_x, self._width = (radius * max(1.0, norm(point)) for point in (x, y))
        self._generator = torch.Generator().manual_seed(seed)
        self._here = oracle.linearize(x, y)

    def spectrum(self, steps: int) -> Known:
        found = extreme_eigenvalues(self._here.hvp, self._y, steps)
        return {
            "mu": Constant(
                max(found.smallest, 0.0),
                Kind.ESTIMATE,
                f"Lanczos, {found.products} products, within {found.smallest_error:.1e}",
            ),
            "L_g": Constant(
                max(found.largest + found.largest_error, -found.smallest),
                Kind.ESTIMATE,
                f"Lanczos, {found.products} products, {found.largest_error:.1e} added",
            ),
        }

    def differences(self) -> Known:
        """The largest quotients over the sampled directions."""
        greatest = dict.fromkeys(_DIFFERENCES, 0.0)
        for _ in range(self._samples):
            v = self._direction(self._y)
            quotients = {**self._along_y(v), **self._along_x(v)}
            greatest = {name: max(greatest[name], q) for name, q in quotients.items()}
        if not all(map(math.isfinite, greatest.values())):
            raise ValueError(
                f"the derivatives within radius {self._radius:g} are not all finite: choose a "
                "smaller one, as in constants=bilevel.theory.estimate(problem, x, y, "
                f"radius={self._radius / 1000:g})"
            )
        how = f"greatest of {self._samples} directions"
        return {name: Constant(value, Kind.ESTIMATE, how) for name, value in greatest.items()}

    def _along_y(self, v: Tensor) -> dict[str, float]:
        y = self._y + self._direction(self._y) * self._width
        there = self._oracle.linearize(self._x, y)
        (f_x, f_y), (g_x, g_y) = self._outer(self._x, self._y), self._outer(self._x, y)
        return {
            "L_fx": norm(g_x - f_x) / self._width,
            "L_fy": norm(g_y - f_y) / self._width,
            "rho": norm(there.hvp(v) - self._here.hvp(v)) / self._width,
            "tau": norm(self._pull(there.cross(v) - self._here.cross(v))) / self._width,
            "M": max(norm(torch.cat(pair)) for pair in ((f_x, f_y), (g_x, g_y))),
        }

    def _along_x(self, v: Tensor) -> dict[str, float]:
        x = self._x + self._direction(self._x) * self._width_x
        cross = self._pull(self._here.cross(v))
        there = self._oracle.pull(x, self._oracle.linearize(x, self._y).cross(v))
        f_x, g_x = self._outer(self._x, self._y)[0], self._outer(x, self._y)[0]
        return {
            "cross": norm(cross),
            "L_xx": norm(g_x - f_x) / self._width_x,
            "tau_x": norm(there - cross) / self._width_x,
        }

    def noise(self) -> Constant:
        rows = self._oracle.inner_rows
        if rows is None:
            return Constant(0.0, Kind.EXACT, "g has no rows to draw from")
        whole, streams = self._here.gradient(), self._oracle.streams(0)
        count = min(4 * self._samples, rows)
        drawn = streams.rows("inner", count)
        assert drawn is not None
        own = (self._oracle.inner(self._x, self._y, row[None]).gradient() for row in drawn)
        mean = sum(norm(gradient - whole) ** 2 for gradient in own) / count
        return Constant(math.sqrt(mean), Kind.ESTIMATE, f"here, over {count} of {rows} rows")

    def _outer(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        of_x, of_y = self._oracle.outer(x, y).gradient()
        return self._oracle.pull(x, of_x), of_y

    def _pull(self, covector: Tensor) -> Tensor:
        return self._oracle.pull(self._x, covector)

    def _direction(self, like: Tensor) -> Tensor:
        random = torch.randn(len(like), generator=self._generator, dtype=torch.float64).to(like)
        return torch.nn.functional.normalize(random, dim=0)
