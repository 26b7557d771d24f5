"""What the oracles of few-shot problems offer besides the waist."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from bilevel.oracles.points import Oracle
from bilevel.problem.sources import Rows


class TaskOracle(Oracle):
    """An oracle of tasks, whose adapted models can be asked about the query images."""

    @abstractmethod
    def query_logits(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """(tasks, query images, ways), for the accuracy."""
