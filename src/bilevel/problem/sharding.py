"""A problem whose rows are spread over processes, each of which works on its part."""

from __future__ import annotations

from typing import Any

from bilevel.arguments import instance
from bilevel.problem.identity.problems import identity_of_problem
from bilevel.problem.parts import Part
from bilevel.problem.peers import Group, Peers
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Batch, Rows, Source


class Sharded(Problem):
    """A problem of whose rows this process holds a part; made by `shard`."""

    def __init__(self, whole: Problem, peers: Peers) -> None:
        self.__dict__.update(whole.__dict__)
        self.peers, self.rank = peers, peers.rank
        # While all rows are here: later no process could tell whether the others agree.
        self.whole_identity = identity_of_problem(whole)
        # Tasks are few, and both losses see the same ones: every process keeps them all.
        self.inner_part, self.outer_part = (
            None if data is None or whole.tasks or data.is_stream else Part.of(len(data), peers)
            for data in (whole.inner_data, whole.outer_data)
        )
        if whole.model is not None and self.inner_part and self.outer_part:
            self.model = whole.model.part(self.inner_part, self.outer_part)
        self.has_part_of_model = self.model is not whole.model
        self.inner_data = _part_of_data(whole.inner_data, self.inner_part, peers)
        self.outer_data = _part_of_data(whole.outer_data, self.outer_part, peers)


def shard(problem: Problem, peers: Peers | None = None) -> Problem:
    """The same problem, its rows spread over the processes of a torch.distributed group.

    Every process must build the same problem, shard it, and run the same program with it: the
    algorithms and their random rows are the same, and gradients and products are summed over the
    processes. Each process releases the rows of the others. A loss must be a mean over its rows
    plus terms without data (over tasks: g a sum and f a mean).

    Args:
        problem: the whole problem, on each process.
        peers: the processes; by default, those of the default group.

    Example:
        In a program that `torchrun --nproc-per-node 2 program.py` starts:

        >>> import torch, bilevel
        >>> rows = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        ...     inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        ...     x0=torch.ones(2), y0=torch.zeros(2), outer_data=rows, inner_data=rows)
        >>> with bilevel.peers.from_environment() as peers:
        ...     result = bilevel.minimize(
        ...         bilevel.shard(problem, peers), bilevel.algorithms.AIDBiO(), steps=20)
        >>> bool(result.x.norm() < 1e-3)  # x* = 0
        True
    """
    instance("problem", problem, Problem, "bilevel.Problem(...)")
    if isinstance(problem, Sharded):
        raise ValueError("the problem is sharded already")
    peers = Group() if peers is None else peers
    for name, data in (("inner_data", problem.inner_data), ("outer_data", problem.outer_data)):
        if data is None or problem.tasks or data.is_stream:
            continue
        if len(data) < peers.size:
            raise ValueError(
                f"{name} has {len(data)} rows, fewer than the {peers.size} processes: start fewer"
            )
    return problem if peers.size == 1 else Sharded(problem, peers)


class _PartOfData(Source):
    """A part of the rows, under their numbers among all rows."""

    def __init__(self, data: Source, part: Part) -> None:
        self._part, self._held = part, data.part(part.first, part.end)
        self.is_fixed = self._held.is_fixed

    def __len__(self) -> int:
        return self._part.total

    def rows(self, rows: Rows) -> Any:
        return self._held.rows(None if rows is None else rows - self._part.first)

    def batch(self, rows: Rows) -> Batch:
        if rows is None or len(rows) == len(self._part):  # all rows of this part
            return Batch(self._held.rows(None), self._part.rows)
        return super().batch(rows)


def _part_of_data(data: Source | None, part: Part | None, peers: Peers) -> Source | None:
    if data is not None and data.is_stream:
        return data.for_rank(peers.rank, peers.size)  # each process its own batches
    return data if data is None or part is None else _PartOfData(data, part)
