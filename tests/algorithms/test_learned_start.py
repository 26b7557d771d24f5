"""y0 as a function of x: MAML differentiates through the start."""

from __future__ import annotations

import pytest
import torch
from bilevel.inner import GradientDescent

import bilevel
from bilevel.algorithms import MAML, AIDBiO, ITDBiO
from bilevel.hypergradients import LearnedStart, Stand
from bilevel.oracles import make

from ..truth.dense_truth import relative
from ..truth.quadratics import quadratic
from ..truth.raised_errors import assert_raises, claims
from ..truth.watched import Watched

Q = quadratic(6.0, (3, 3))
X = torch.tensor([0.7, -0.3, 0.2]).double()
ALPHA = 0.2


def start(x):
    return 2 * x + x**2


def stated(y0=start, inner=None):
    """f = ½‖y − t‖² and g = ½ (y − c)'A(y − c): x is the start alone, unless inner says more."""
    return bilevel.Problem(
        outer=lambda x, y: 0.5 * (y - Q.t) @ (y - Q.t),
        inner=inner or (lambda x, y: 0.5 * (y - Q.c) @ Q.A @ (y - Q.c)),
        x0=X,
        y0=y0,
    )


def mixed(x, y):
    """An inner loss with x in it, whose Hessian changes along the path."""
    return 0.5 * (y - x) @ Q.A @ (y - x) + 0.1 * (y**4).sum() + (x * y**2).sum().exp() * 0.01


def estimate(problem, D, x=X, **settings):
    oracle = make(problem)
    method = bilevel.ITD(start=LearnedStart(), **settings)
    y = LearnedStart().point(oracle, x, problem.y0)
    return method.estimate(oracle, Stand(x, y), GradientDescent(D, ALPHA), oracle.streams(0))


def unrolled(inner, x, D, truncate=None):
    x = x.clone().requires_grad_()
    y = start(x)
    for t in range(D):
        if truncate is not None and 0 < t == D - truncate:  # where no step is cut, no start is
            y = y.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(inner(x, y), y, create_graph=True)
        y = y - ALPHA * gradient
    # x may be out of reach: then the derivative is zero.
    f = 0.5 * (y - Q.t) @ (y - Q.t)
    return torch.autograd.grad(f, x, materialize_grads=True)[0]


@pytest.mark.parametrize("D", [1, 2, 9])
def test_the_derivative_through_the_start_has_its_closed_form(D):
    """y^D = c + (I − αA)^D (s(x) − c), so ∂f/∂x = s'(x) (I − αA)^D (y^D − t)."""
    shrink = torch.linalg.matrix_power(torch.eye(3).double() - ALPHA * Q.A, D)
    y_D = Q.c + shrink @ (start(X) - Q.c)
    truth = (2 + 2 * X) * (shrink @ (y_D - Q.t))
    found = estimate(stated(), D)
    assert relative(found.inner.y, y_D) < 1e-13
    assert relative(found.value, truth) < 1e-12
    watched = Watched(MAML(inner_steps=D, inner_lr=ALPHA, outer_lr=0.1))
    bilevel.minimize(stated(), watched, steps=1)
    assert relative(watched.directions[0], truth) < 1e-12


@pytest.mark.parametrize("truncate", [None, 1, 4, 6, 8])
@pytest.mark.parametrize("checkpoint", [None, 1, 4])
def test_it_equals_unrolled_autograd_where_x_is_in_the_inner_loss_too(truncate, checkpoint):
    found = estimate(stated(inner=mixed), 6, truncate=truncate, checkpoint=checkpoint).value
    assert relative(found, unrolled(mixed, X, 6, truncate)) < 1e-12


def test_it_is_the_central_difference_of_the_outer_loss_after_the_steps():
    problem, width = stated(inner=mixed), 1e-6

    def phi(x):
        oracle = make(problem)
        y = oracle.start(x, problem.y0).point()
        y = GradientDescent(6, ALPHA).solve(oracle, x, y, oracle.streams(0)).y
        return problem.outer_loss(x, y)

    steps = width * torch.eye(3).double()
    truth = torch.stack([(phi(X + h) - phi(X - h)) / (2 * width) for h in steps])
    assert relative(estimate(problem, 6).value, truth) < 1e-8


def test_the_covector_of_the_start_is_its_jacobian():
    oracle = make(stated())
    r = torch.tensor([0.3, -1.2, 0.8]).double()
    assert torch.equal(oracle.start(X, torch.zeros(3).double()).point(), start(X))
    pulled = oracle.start(X, r).pull(r)
    assert relative(pulled, (2 + 2 * X) * r) < 1e-14
    width = 1e-6
    for i, h in enumerate(width * torch.eye(3).double()):
        slope = (oracle.start(X + h, r).point() - oracle.start(X - h, r).point()) @ r / (2 * width)
        assert float(pulled[i]) == pytest.approx(float(slope), rel=1e-8)


def test_every_step_starts_from_the_start_at_its_own_x():
    """Whatever warm_start says: the start is the problem's."""
    for warm in (True, False):
        algorithm = MAML(inner_steps=2, inner_lr=ALPHA, outer_lr=0.1, warm_start=warm)
        watched, seen, x = Watched(algorithm), [], X
        bilevel.minimize(
            stated(inner=mixed), watched, steps=4, callbacks=[lambda p, s=seen: s.append(p.state)]
        )
        for state, direction in zip(seen, watched.directions, strict=True):
            assert relative(direction, unrolled(mixed, x, 2)) < 1e-12
            x = state.x


@pytest.mark.parametrize("y0", [Q.c * 0.5, lambda x: Q.c * 0.5], ids=["tensor", "function"])
def test_where_the_start_does_not_depend_on_x_it_is_itd_bio_without_a_warm_start(y0):
    settings = {"inner_steps": 5, "inner_lr": ALPHA, "outer_lr": 0.3}
    learned = bilevel.minimize(stated(y0, mixed), MAML(**settings), steps=5)
    given = bilevel.minimize(stated(y0, mixed), ITDBiO(warm_start=False, **settings), steps=5)
    assert torch.equal(learned.x, given.x)
    assert torch.equal(learned.y, given.y)
    warm = bilevel.minimize(stated(y0, mixed), ITDBiO(**settings), steps=5)
    assert not torch.equal(learned.x, warm.x)


@pytest.mark.parametrize("method", [ITDBiO, AIDBiO])
def test_other_algorithms_start_from_y0_at_x0(method):
    function, tensor = (
        bilevel.minimize(stated(y0, mixed), method(inner_steps=3, inner_lr=ALPHA), steps=3)
        for y0 in (start, start(X))
    )
    assert torch.equal(function.x, tensor.x)


def test_variables_may_be_dicts_of_tensors():
    problem = bilevel.Problem(
        outer=lambda x, y: (y["a"] - 1).square().sum() + (y["b"] - x["w"][0]).square().sum(),
        inner=lambda x, y: (y["a"] * x["w"]).square().sum() + (y["b"] - 1).square().sum(),
        x0={"w": torch.tensor([1.0, 2.0]).double(), "u": torch.tensor(0.5).double()},
        y0=lambda x: {"a": x["w"] ** 2, "b": x["u"].expand(3, 1)},
    )
    watched = Watched(MAML(inner_steps=2, inner_lr=0.1, outer_lr=0.1))
    bilevel.minimize(problem, watched, steps=1)
    w, u = (
        torch.tensor([1.0, 2.0]).double().requires_grad_(),
        torch.tensor(0.5).double().requires_grad_(),
    )
    a, b = w**2, u.expand(3, 1)
    for _ in range(2):
        a, b = a - 0.1 * 2 * a * w**2, b - 0.1 * 2 * (b - 1)
    f = (a - 1).square().sum() + (b - w[0]).square().sum()
    truth = torch.cat([g.reshape(-1) for g in torch.autograd.grad(f, (w, u))])
    assert relative(watched.directions[0], truth) < 1e-12


def test_x_may_be_the_start_alone():
    """Without a start, the same losses would be refused: x would have no part."""
    assert stated().y0.tolist() == start(X).tolist()
    with pytest.raises(ValueError, match="neither loss depends on x"):
        stated(torch.zeros(3).double())


def test_the_costs_are_one_hessian_product_more_than_those_of_itd_bio():
    counts = bilevel.minimize(stated(), MAML(inner_steps=4), steps=1).counts
    assert (counts.gc_f, counts.gc_g, counts.jv, counts.hv) == (2, 4, 4, 4)


def test_the_start_is_copied_and_x0_is_not_written_to():
    x0 = X.clone()
    problem = bilevel.Problem(
        outer=lambda x, y: (y**2).sum(),
        inner=lambda x, y: ((y - 1) ** 2).sum(),
        x0=x0,
        y0=lambda x: x,
    )
    bilevel.minimize(problem, MAML(inner_steps=2), steps=2)
    assert torch.equal(x0, X)
    x0.add_(1)
    assert torch.equal(problem.y0, X)


@claims(
    ("no tensor", lambda: stated(lambda x: 3.0), TypeError, "y0 must be a tensor … float 3.0"),
    (
        "another dtype",
        lambda: stated(lambda x: x.float()),
        ValueError,
        "x0 is torch.float64 … y0 is torch.float32 … Convert one",
    ),
    (
        "values that are not finite",
        lambda: stated(lambda x: x / 0),
        ValueError,
        "y0 holds 3 values that are NaN or infinite",
    ),
    (
        "start by name",
        lambda: bilevel.ITD(start="learned"),
        TypeError,
        r"start must be an object such as bilevel.hypergradients.LearnedStart\(\), got 'learned'",
    ),
)
def test_a_wrong_start_raises(provoke, error, text):
    assert_raises(provoke, error, text)
