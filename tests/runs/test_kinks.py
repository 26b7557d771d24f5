"""A run is not called converged where a derivative does not exist."""

import pytest
import torch

import bilevel
from bilevel import algorithms, oracles
from bilevel.runs.kinks import has_kink

D = torch.float64


def _problem(inner, outer, x0, y0, dtype=D):
    return bilevel.Problem(
        outer=outer, inner=inner, x0=torch.tensor(x0, dtype=dtype), y0=torch.tensor(y0, dtype=dtype)
    )


def _near_one(x, y):
    return ((y - 1) ** 2).sum()


# Autograd says 0 where each of these has a kink at its start, and Φ falls from there.
KINKED = {
    "inner, |y - x|": (lambda x, y: (y - x).abs().sum() + y.square().sum() / 2, _near_one),
    "inner, a dead relu": (
        lambda x, y: (torch.relu(y).sum() - 3) ** 2 + (1 + x**2).sum() * y.square().sum(),
        lambda x, y: ((torch.relu(y) - 1 + x) ** 2).sum() + x.sum() * 2,
    ),
    "cross, relu(x) y": (lambda x, y: ((y - torch.relu(x)) ** 2).sum(), _near_one),
    "outer, -|x|": (
        lambda x, y: ((y - x) ** 2).sum(),
        lambda x, y: (y**2).sum() - x.abs().sum(),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("name", KINKED)
def test_a_start_on_a_kink_is_doubtful(name, dtype):
    problem = _problem(*KINKED[name], [0.0, 0.0], [0.0, 0.0], dtype)
    result = bilevel.minimize(problem, tol=1e-3)
    assert result.status is bilevel.Status.DOUBTFUL
    assert "kink" in result.message


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_smooth_losses_have_no_kink_in_any_unit(unit, dtype):
    def inner(x, y):
        return (y - torch.sin(x / unit)).cosh().log().sum() + (x / unit).exp() @ y**2

    problem = _problem(inner, _near_one, [0.0, unit], [0.3, 0.0], dtype)
    oracle = oracles.make(problem)
    y = torch.tensor([0.0, 1e-3], dtype=dtype)
    assert not has_kink(oracle, problem.x0, y, torch.ones(2, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_where_gradients_vanish_smooth_losses_have_no_kink(dtype):
    """There every change is all of the gradient: only how it shrinks tells it from a jump."""
    problem = _problem(lambda x, y: ((y - 2 * x) ** 2).sum(), _near_one, [0.5], [1.0], dtype)
    assert not has_kink(oracles.make(problem), problem.x0, problem.y0, torch.zeros(1, dtype=dtype))


def test_a_kink_nearby_does_not_count():
    problem = _problem(*KINKED["inner, |y - x|"], [0.0, 0.0], [0.0, 0.0])
    y = torch.full((2,), 1e-7, dtype=D)
    assert not has_kink(oracles.make(problem), problem.x0, y, y)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_needs_no_number(dtype):
    problem = _problem(lambda x, y: ((y - 2 * x) ** 2).sum(), _near_one, [0.0], [0.0], dtype)
    result = bilevel.minimize(problem)
    assert result.x.dtype is dtype
    assert abs(float(result.x) - 0.5) < 4 * torch.finfo(dtype).eps


def test_a_run_at_rest_says_so():
    problem = _problem(lambda x, y: ((y - 2 * x) ** 2).sum(), _near_one, [0.5], [0.0])
    result = bilevel.minimize(problem, algorithms.AIDBiO())
    assert result.status is bilevel.Status.STALLED
    assert "exactly zero" in result.message
    assert result.y == 1
