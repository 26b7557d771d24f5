"""What a run returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bilevel.errors import UserError
from bilevel.record import Record
from bilevel.runs.history import HistoryRecord as HistoryRecord
from bilevel.runs.history import Past as Past
from bilevel.runs.status import Status as Status

if TYPE_CHECKING:  # a result itself rests on almost nothing
    from bilevel.algorithms.contract import State
    from bilevel.oracles.prices import Counts
    from bilevel.problem.problem import Problem
    from bilevel.problem.structure import Variables


@dataclass(frozen=True)
class Result(Record):
    """The outcome of a run.

    Args:
        x, y: in the user's structures, detached; for a module, its variables by name. If the run
            converged, the x whose hypergradient was verified to be small, and y at that x; if it
            diverged, the best point that was seen, at worst the start.
        status: how the run ended.
        message: the same in a sentence, with advice.
        history: a record for each outer step.
        counts: of the oracle calls of all steps.
        seconds: how long all steps took, without evaluation, metrics and callbacks.
        state: the last state, from which the run can continue.
        problem: what was solved.
        chosen: which method ran, and why: `bilevel.recommend` says the same beforehand.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> result = bilevel.minimize(means(), tol=1e-6)
        >>> print(result.status, bool(result.x.norm() < 1e-6))
        converged True
    """

    x: Variables
    y: Variables
    status: Status
    message: str
    history: list[HistoryRecord]
    counts: Counts
    seconds: float
    state: State
    problem: Problem = field(repr=False)
    chosen: str = field(default="", repr=False)

    @property
    def past(self) -> Past:
        """What `minimize(..., after=result.past)` continues from, with more steps.

        Example:
            >>> import torch, bilevel
            >>> problem = bilevel.Problem(
            ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
            ...     x0=torch.ones(1), y0=torch.zeros(1))
            >>> algorithm = bilevel.algorithms.AIDBiO(outer_lr=0.1)
            >>> first = bilevel.minimize(problem, algorithm, steps=3)
            >>> second = bilevel.minimize(problem, algorithm, steps=5, after=first.past)
            >>> whole = bilevel.minimize(problem, algorithm, steps=5)
            >>> bool(second.x == whole.x), len(second.history), second.counts == whole.counts
            (True, 5, True)
        """
        # Without those of a step that diverged: a run continues from its last good step.
        counts = self.history[-1].counts if self.history else self.counts
        return Past(self.state, self.seconds, counts, self.history)

    def x_module(self) -> Any:
        """x as it was given, with modules in it as trained copies, buffers and all."""
        return self._with_modules(0, "x")

    def y_module(self) -> Any:
        """y as it was given, with modules in it as trained copies, buffers and all.

        Example:
            >>> import torch, bilevel
            >>> net = torch.nn.Linear(1, 1, bias=False)
            >>> problem = bilevel.Problem(
            ...     outer=lambda x, y: (y(torch.ones(1, 1)) - 1).square().sum(),
            ...     inner=lambda x, y: (y(torch.ones(1, 1)) - 2 * x).square().sum(),
            ...     x0=torch.zeros(1), y0=net)
            >>> algorithm = bilevel.algorithms.AIDBiO(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
            >>> bilevel.minimize(problem, algorithm, steps=50).y_module().weight.round(decimals=3)
            tensor([[1.]], grad_fn=<RoundBackward1>)
        """
        return self._with_modules(1, "y")

    def _with_modules(self, which: int, name: str) -> Any:
        problem = self.problem
        structures = problem.x_structure, problem.y_structure
        if not structures[which].modules:
            raise UserError(f"{name}0 was not a module: use result.{name}")
        x, y = (s.flatten(value) for s, value in zip(structures, (self.x, self.y), strict=True))
        return problem.modules(x, y, self.state.buffers or problem.buffers)[which]

    def __str__(self) -> str:
        return f"{self.status} after {len(self.history)} steps: {self.message}"
