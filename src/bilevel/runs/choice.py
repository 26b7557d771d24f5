"""Which method runs if none is named, or one without settings; and why."""

from __future__ import annotations

from typing import NamedTuple

from bilevel.algorithms.contract import Algorithm
from bilevel.algorithms.judged import Judged
from bilevel.algorithms.paced_saba import PacedSABA
from bilevel.algorithms.paced_soba import PacedSOBA
from bilevel.algorithms.registry import named, registry
from bilevel.problem.problem import Problem

_MANY = 400  # rows: the size of the first sample
_VERY_MANY = 20_000  # rows from which on compiling pays off quickly
_HUGE = 100_000  # and for several columns, which take longer to compile
# Without numbers these stand for the quasi-Newton form of the same differentiation.
_WITHOUT_NUMBERS = {"aid-bio": "aid-qn", "hoag": "aid-qn"}


class Choice(NamedTuple):
    """A method, and why it was chosen."""

    method: Algorithm
    why: str

    def __str__(self) -> str:
        return f"{type(self.method).__name__}: {self.why}"


def chosen(problem: Problem, algorithm: Algorithm | None = None) -> Algorithm:
    """The method that `minimize(problem, algorithm)` runs.

    If no method is given: `AnchoredAID` for sums of 400 rows or more, else `AIDQN`; from 20,000
    rows on, compiled stretches of SABA come first (`bilevel.algorithms.paced_saba`), if the model
    is linear with one column and dense rows, and x holds its penalties; with several columns, those
    of SOBA (`bilevel.algorithms.paced_soba`) from 100,000 rows on. `AIDBiO()` and `HOAG()`
    without any setting stand for `AIDQN()`. Any other method of the library without settings takes
    its own steps with measured sizes, in chapters judged by Φ (`bilevel.algorithms.judged`). Where
    Φ cannot be compared between steps, because each step has its own tasks or rows come as a
    stream, a method is used as it is; by default `AIDBiO()` as a double loop for tasks, and
    `StocBiO()` for streams.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> type(bilevel.chosen(problem)).__name__
        'AIDQN'
        >>> type(bilevel.chosen(problem, bilevel.algorithms.SOBA())).__name__
        'Judged'
        >>> bilevel.chosen(problem, bilevel.algorithms.AIDBiO(cg_steps=5)).cg_steps
        5
    """
    return choice(problem, algorithm).method


def recommend(problem: Problem) -> str:
    """Which method `minimize(problem)` takes, and why: what `Result.chosen` says after a run.

    docs/which-method.md has the table behind it.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> bilevel.recommend(problem).partition(", ")[0]
        'AIDQN: no rows to sample'
    """
    return str(choice(problem))


def choice(problem: Problem, algorithm: Algorithm | None = None) -> Choice:
    """`chosen`, with the reason."""
    asked = "as you asked for it"
    if problem.tasks is not None:
        why = "each step has tasks of its own, so that Φ cannot be compared from step to step"
        return Choice(algorithm or named("aid-bio").algorithm(), asked if algorithm else why)
    both = [data for data in (problem.inner_data, problem.outer_data) if data is not None]
    if any(data.is_stream for data in both):
        why = "the rows come as a stream, so each step sees a batch alone"
        return Choice(algorithm or named("stocbio").algorithm(), asked if algorithm else why)
    if algorithm is None:
        return _by_rows(problem, [len(data) for data in both])
    for name, entry in registry().items():
        if type(algorithm) is entry.algorithm and algorithm == entry.algorithm():
            return _without_numbers(name, algorithm)
    return Choice(algorithm, "as you asked for it, with your settings")


def _by_rows(problem: Problem, rows: list[int]) -> Choice:
    most = max(rows, default=0)
    if most < _MANY:
        few = f"there are only {most} rows" if most else "no rows to sample"
        solves = "so each step solves the inner problem and the linear system accurately"
        return Choice(named("aid-qn").algorithm(), f"{few}, {solves}; it needs no settings")
    many = f"there are {most:,} rows"
    model, weighs_rows = problem.model, len(problem.x0) >= max(rows)
    fast = model is not None and model.in_array_code and problem.peers.size == 1
    columns = model.columns if model is not None and fast and not weighs_rows else 0
    if most >= _HUGE and columns > 1:
        why = "and the model can be compiled: SOBA runs in compiled stretches, judged by looks"
        return Choice(
            PacedSOBA(), f"{many}, {why} at some rows, and AnchoredAID ends it; no settings needed"
        )
    if most >= _VERY_MANY and columns == 1:
        why = "and the model can be compiled: SABA runs in compiled stretches, judged by Φ on all"
        return Choice(
            PacedSABA(), f"{many}, {why} rows, and AnchoredAID ends it; no settings needed"
        )
    why = "so it moves on small samples that are corrected by looks at many rows"
    return Choice(named("anchored-aid").algorithm(), f"{many}, {why}; it needs no settings")


def _without_numbers(name: str, algorithm: Algorithm) -> Choice:
    if name in _WITHOUT_NUMBERS:
        found = named(_WITHOUT_NUMBERS[name]).algorithm()
        return Choice(found, f"{name} without settings is its quasi-Newton form")
    # Without `sized` a method finds its own numbers already.
    if algorithm.sized({}) is None:
        return Choice(algorithm, "it finds its own settings")
    return Choice(
        Judged(method=algorithm),
        f"{name} without settings: its steps are kept only as far as Φ falls",
    )
