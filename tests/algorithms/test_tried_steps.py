"""A tried step is taken only where Φ is known to be lower."""

from dataclasses import dataclass

import torch

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
