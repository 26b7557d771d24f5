"""A tried step is taken only where Φ is known to be lower."""

from dataclasses import dataclass, field

import pytest
import torch

import bilevel
from bilevel.algorithms import AIDQN
from bilevel.algorithms.contract import Solve, State
from bilevel.algorithms.tried_steps import Course, Evaluation, TriedSteps
from bilevel.hypergradients.base import Stand
from bilevel.oracles import make
from bilevel.oracles.views import View
from bilevel.problem.examples import halves

from ..bank.fresh import walls
from ..bank.truth import truth


@dataclass(frozen=True, kw_only=True)
class _Told(TriedSteps):
    """Φ falls from 1 by a tenth of what its slope promises; beyond 0.5 little of it is known."""

    def evaluate(self, oracle, stand, wanted, streams):
        x = float(stand.x)
        slack = 0.08 if x > 0.5 else 0.0
        return Evaluation(stand.x, stand.y, stand.v, -torch.ones(1), 1 - 0.1 * x, slack)


def test_a_fall_within_what_is_not_known_of_it_is_not_taken():
    zero = torch.zeros(1)
    here = Evaluation(zero, zero, zero, -torch.ones(1), 1.0, 0.0)
    course = Course(torch.ones(1), -1.0, 1.0)
    there, cut = _Told().tried(None, here, course, None, {})
    assert float(there.x) < 0.5
    assert there.value < here.value
    assert cut


@pytest.mark.parametrize("far", [-40.0, -6.0, 6.0, 40.0])
@pytest.mark.parametrize("drop", [0.01, 0.3])
def test_where_newtons_steps_do_not_shrink_phi_is_not_taken_for_known(far, drop):
    """Beside exponential walls ∇y g falls by a factor per step, and y has hardly moved."""
    problem = walls(p=1)
    oracle = make(problem)
    x, y = torch.full_like(problem.x0, far), problem.y0
    method = AIDQN(drop=drop)
    found = method.evaluate(oracle, Stand(x, y, None), 1e4, oracle.streams(0))
    assert abs(found.value - truth(problem, x, y)[0]) <= max(found.slack, 1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_penalty_that_falls_without_end_in_single_precision_is_followed_to_a_word(seed):
    """The same rows train and judge, a frequent slip: the best log-penalty is minus infinity."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(50, 3, generator=draw), torch.randn(50, generator=draw)

    def error(x, w, batch):
        return ((batch.data[0] @ w - batch.data[1]) ** 2).mean()

    problem = bilevel.Problem(
        error,
        lambda x, w, batch: error(x, w, batch) + x.exp() * (w**2).sum(),
        torch.tensor(0.0),
        torch.zeros(3),
        inner_data=rows,
        outer_data=rows,
    )
    result = bilevel.minimize(problem)
    best = torch.linalg.lstsq(rows[0], rows[1]).solution
    torch.testing.assert_close(result.y, best, rtol=1e-4, atol=1e-5)


@dataclass(frozen=True, kw_only=True)
class _Seen(_Told):
    """Φ = x², known exactly wherever it is evaluated."""

    seen: list = field(default_factory=list)

    def evaluate(self, oracle, stand, wanted, streams):
        self.seen.append(float(stand.x))
        x = stand.x.clone()
        solves = (Solve("inner", "converged", 1, 0.0),)
        return Evaluation(x, stand.y, stand.v, 2 * x, float(x) ** 2, 0.0, solves)


def _kept(value: float, slack: float) -> State:
    """A state at x = 1 that takes Φ there to be `value`, to within `slack`."""
    one, none = torch.ones(1), torch.zeros(0, 1)
    points = {"x": one, "y": one, "v": one, "h": 2 * one}
    sizes = {"value": value, "slack": slack, "fresh": 0.5}
    return State(3, points, {"x": {"s": none, "z": none}, "v": {}}, measured=sizes)


def test_where_phi_was_taken_for_too_low_it_is_looked_at_again():
    """Else no length lowers Φ, and all of them are tried before anything else is."""
    method, view = _Seen(), View.of(make(halves()))
    after, report = method.step(view, _kept(value=0.1, slack=0.1))
    assert not report.stuck
    assert "h" not in after.points
    tried = len(method.seen)
    assert tried <= 3
    last, _ = method.step(view, after)
    assert method.seen[tried] == 1.0
    assert 0 < float(last.x) < 1
    assert last.measured["value"] < 1.0
    assert "looked" not in last.measured


def test_a_second_look_at_the_same_point_is_not_taken():
    """What was just evaluated is not at fault: the pairs go, then tolerances are tightened."""
    method, view = _Seen(), View.of(make(halves()))
    state = _kept(value=0.1, slack=0.0)
    state.measured["looked"] = 1.0
    after, _ = method.step(view, state)
    assert after.measured["tighter"] < 1


def test_a_hypergradient_at_the_edge_of_single_precision_is_followed_to_a_word():
    problem = bilevel.Problem(
        lambda x, y: y * 1e-20,
        lambda x, y: (y - 1e-22 * x) ** 2,
        torch.tensor(0.0),
        torch.tensor(0.0),
    )
    result = bilevel.minimize(problem, bilevel.algorithms.AIDQN(), steps=3)
    assert result.x.isfinite()
    assert result.status != "converged"
