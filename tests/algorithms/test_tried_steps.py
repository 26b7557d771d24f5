"""A tried step is taken only where Φ is known to be lower."""

from dataclasses import dataclass

import pytest
import torch

import bilevel
from bilevel.algorithms.tried_steps import Course, Evaluation, TriedSteps


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
