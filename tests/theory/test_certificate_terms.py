"""Each term of a certificate is needed: problems of one number where it is the only one left."""

import math

import pytest
import torch
from bilevel.inner import GradientDescent
from bilevel.linear import CG, SampledNeumann

import bilevel
from bilevel import AID, ITD, certify

from ..truth.theory_problems import known, truth


def problem(outer, inner):
    start = torch.zeros(1).double()
    return bilevel.Problem(
        lambda x, y: outer(x, y).sum(), lambda x, y: inner(x, y).sum(), start, start
    )


def one(value):
    return torch.tensor([value]).double()


def error(made, x, y, method=None, inner=None):
    value = bilevel.hypergradient(made, x, y, method, inner).value
    return float((value - truth(made, x).gradient).abs())


def test_rho_covers_a_hessian_that_turns():
    """g = ½y² − xy + (a/ω²)(1 − cos ωy), f = y: only H moves with y."""
    a, omega = 0.5, 20.0
    made = problem(
        lambda x, y: y, lambda x, y: 0.5 * y**2 - x * y + a / omega**2 * (1 - (omega * y).cos())
    )
    constants = known(mu=0.5, L_g=1.5, cross=1.0, rho=a * omega)
    x = one(math.pi / 2 / omega + a / omega)
    y = truth(made, x).y + 0.01
    assert 0.1 < error(made, x, y) <= certify(made, x, y, constants=constants).error


def test_l_fx_covers_a_gradient_by_x_that_moves_with_y():
    """f = 3xy at x = 0, where ∇y f is zero: only ∇x f is off."""
    made = problem(lambda x, y: 3 * x * y, lambda x, y: 0.5 * y**2 - 1e-9 * x * y)
    constants = known(mu=1.0, L_g=1.0, cross=1e-9, L_fx=3.0)
    x, y = one(0.0), one(0.7)
    assert error(made, x, y) == pytest.approx(3 * 0.7)
    assert certify(made, x, y, constants=constants).error == pytest.approx(3 * 0.7)
    steps = GradientDescent(2, 0.5)
    by_itd = certify(made, x, y, ITD(), steps, constants=constants)
    assert error(made, x, y, ITD(), steps) == pytest.approx(3 * 0.7 / 4)
    assert by_itd.error == pytest.approx(3 * 0.7 / 4)


def test_l_fy_covers_a_gradient_by_y_that_moves_with_y():
    """f = 2y²: v is off by 4(y − y*), and no more."""
    made = problem(lambda x, y: 2 * y**2, lambda x, y: 0.5 * y**2 - x * y)
    constants = known(mu=1.0, L_g=1.0, cross=1.0, L_fy=4.0)
    x, y = one(1.0), one(1.3)
    assert error(made, x, y) == pytest.approx(4 * 0.3)
    assert certify(made, x, y, constants=constants).error == pytest.approx(4 * 0.3)


def tanh_coupling(m):
    """g = ½y² − x log cosh y, f = my: at x = 0, y* = 0 and ∇x∇y g = −tanh y."""
    return problem(lambda x, y: m * y, lambda x, y: 0.5 * y**2 - x * y.cosh().log())


def test_tau_covers_a_cross_derivative_that_moves_with_y():
    made, x, y = tanh_coupling(5.0), one(0.0), one(0.01)
    constants = known(mu=1.0, L_g=1.0, cross=0.0, tau=1.0)
    off = error(made, x, y)
    assert off == pytest.approx(5 * math.tanh(0.01))
    assert certify(made, x, y, constants=constants).error == pytest.approx(5 * 0.01)


def test_the_jacobian_of_itd_lags_by_d_times_the_contraction():
    """∂y^D/∂x = α Σ q^(D−1−t) tanh(q^t y⁰), which is nearly αDq^(D−1)y⁰ where ∂y*/∂x = 0."""
    made, x, y, steps = tanh_coupling(5.0), one(0.0), one(0.01), GradientDescent(50, 0.1)
    constants = known(mu=1.0, L_g=1.0, cross=0.01 * 0.9**50, tau=1.0)
    lag = 5 * 0.1 * 50 * 0.9**49 * 0.01
    assert error(made, x, y, ITD(), steps) == pytest.approx(lag, rel=1e-4)
    bound = certify(made, x, y, ITD(), steps, constants=constants).error
    assert lag <= bound <= 1.3 * lag


def test_what_itd_has_not_yet_differentiated_is_covered_to_the_digit():
    """On a quadratic from y⁰ = y*: ‖∇y f‖ q^D ‖∂y*/∂x‖."""
    made = problem(lambda x, y: 100 * y, lambda x, y: 0.5 * y**2 - 3 * x * y)
    x, y, steps = one(1.0), one(3.0), GradientDescent(4, 0.25)
    constants = known(mu=1.0, L_g=1.0, cross=3.0)
    assert error(made, x, y, ITD(), steps) == pytest.approx(300 * 0.75**4)
    bound = certify(made, x, y, ITD(), steps, constants=constants).error
    assert bound == pytest.approx(300 * 0.75**4)


@pytest.mark.parametrize("terms", [0, 1, 7])
def test_the_tail_of_the_neumann_series_is_covered_to_the_digit(terms):
    made = problem(lambda x, y: 100 * y, lambda x, y: 0.5 * y**2 - 3 * x * y)
    x, y, method = one(1.0), one(3.0), AID(SampledNeumann(terms, 0.25))
    constants = known(mu=1.0, L_g=1.0, cross=3.0)
    assert error(made, x, y, method) == pytest.approx(300 * 0.75 ** (terms + 1))
    bound = certify(made, x, y, method, constants=constants).error
    assert bound == pytest.approx(300 * 0.75 ** (terms + 1))


def test_the_residual_of_the_linear_solve_is_covered_to_the_digit():
    """No step of CG: v = 0, and all of ∇y f is left."""
    made = problem(lambda x, y: 100 * y, lambda x, y: 0.25 * y**2 - 3 * x * y)
    x, y = one(1.0), one(6.0)
    constants = known(mu=0.5, L_g=0.5, cross=3.0)
    assert error(made, x, y, AID(CG(0))) == pytest.approx(600)
    assert certify(made, x, y, AID(CG(0)), constants=constants).error == pytest.approx(600)
