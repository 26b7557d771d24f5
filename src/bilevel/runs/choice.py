"""Which method runs when none is named, or one without a number."""

from __future__ import annotations

from bilevel.algorithms.contract import Algorithm
from bilevel.algorithms.registry import named
from bilevel.problem.problem import Problem

_MANY = 400  # rows: as many as the first sample has
# Without numbers these stand for the quasi-Newton form of the same differentiation.
_WITHOUT_NUMBERS = {"aid-bio": "aid-qn", "hoag": "aid-qn"}


def chosen(problem: Problem, algorithm: Algorithm | None = None) -> Algorithm:
    """The method that `minimize(problem, algorithm)` runs.

    With no method given: `AnchoredAID` for sums of 400 rows or more, else `AIDQN`. `AIDBiO()`
    and `HOAG()` without a single number are `AIDQN()`. Where each step has tasks of its own, whose
    Φ cannot be compared from step to step, the method is `AIDBiO()` as a double loop.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> type(bilevel.chosen(problem)).__name__
        'AIDQN'
        >>> bilevel.chosen(problem, bilevel.algorithms.AIDBiO(cg_steps=5)).cg_steps
        5
    """
    if problem.tasks is not None:
        return algorithm or named("aid-bio").algorithm()
    if algorithm is None:
        rows = [len(data) for data in (problem.inner_data, problem.outer_data) if data is not None]
        return named("anchored-aid" if max(rows, default=0) >= _MANY else "aid-qn").algorithm()
    for name, meant in _WITHOUT_NUMBERS.items():
        if algorithm == named(name).algorithm():
            return named(meant).algorithm()
    return algorithm
