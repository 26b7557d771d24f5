"""The problem in other units of y is the same problem."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.oracles import make
from bilevel.oracles.units import InUnits
from bilevel.solvers.units import learned, rate


def problem() -> bilevel.Problem:
    c = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    return bilevel.Problem(
        outer=lambda x, y: ((y - c) ** 2).sum() + (x * y).sum(),
        inner=lambda x, y: (x.exp() * y**2).sum() + (y - c).cosh().sum() + (y.sum() - 1) ** 2,
        x0=torch.tensor([0.3, -4.0, 6.0], dtype=torch.float64),
        y0=torch.tensor([0.1, 0.2, -0.3], dtype=torch.float64),
    )


def dense(product, like: Tensor) -> Tensor:
    return torch.stack([product(e) for e in torch.eye(len(like), dtype=like.dtype)])


def test_derivatives_by_u_are_those_by_y_times_the_factor() -> None:
    p = problem()
    oracle, W = make(p), torch.tensor([[1.0, 0, 0], [2, 0.5, 0], [0, 1, 3]], dtype=torch.float64)
    units, u = InUnits(oracle, p.y0, W), torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64)
    y = p.y0 + W @ u
    inside, outside = units.linearize(p.x0, u), oracle.linearize(p.x0, y)
    torch.testing.assert_close(inside.gradient(), W.T @ outside.gradient())
    torch.testing.assert_close(dense(inside.hvp, u), W.T @ dense(outside.hvp, y) @ W)
    torch.testing.assert_close(dense(inside.cross, u), W.T @ dense(outside.cross, y))
    torch.testing.assert_close(inside.both(u), (inside.hvp(u), inside.cross(u)))
    f_x, f_u = units.outer(p.x0, u).gradient()
    true_x, true_y = oracle.outer(p.x0, y).gradient()
    torch.testing.assert_close((f_x, f_u), (true_x, W.T @ true_y))
    g = units.inner(p.x0, u)
    torch.testing.assert_close(g.value(), oracle.inner(p.x0, y).value())
    torch.testing.assert_close(g.gradient_x(), oracle.inner(p.x0, y).gradient_x())
    torch.testing.assert_close(units.vector(units.solved(y)), y)
    # What ITD goes back over, where not all graphs are held.
    again = units.again(g, p.x0, None)(u)
    torch.testing.assert_close(again.gradient(), inside.gradient())
    torch.testing.assert_close(dense(again.hvp, u), dense(inside.hvp, u))


def test_in_learned_units_the_curvature_is_one_and_so_is_the_step() -> None:
    p = problem()
    oracle = make(p)
    known = learned(oracle, p.x0, p.y0, {}, oracle.streams(0))
    units, zero = InUnits(oracle, p.y0, known["factor"]), torch.zeros_like(p.y0)
    torch.testing.assert_close(
        dense(units.linearize(p.x0, zero).hvp, zero), torch.eye(3, dtype=torch.float64)
    )
    assert rate(units, p.x0, zero, None, 0) == pytest.approx(1.0)


def test_units_are_learned_anew_where_one_penalty_has_grown() -> None:
    p = problem()
    oracle = make(p)
    known = learned(oracle, p.x0, p.y0, {}, oracle.streams(0))
    near, far = p.x0 + 0.1, p.x0 + torch.tensor([0.0, 11.0, 0.0], dtype=torch.float64)
    assert learned(oracle, near, p.y0, known, oracle.streams(0))["factor"] is known["factor"]
    assert rate(InUnits(oracle, p.y0, known["factor"]), far, p.y0 * 0, None, 1) < 0.1
    again = learned(oracle, far, p.y0, known, oracle.streams(0))
    assert rate(InUnits(oracle, p.y0, again["factor"]), far, p.y0 * 0, None, 1) > 0.99
