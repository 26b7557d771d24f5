"""The rows that one of several processes holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bilevel.problem.peers import Peers


@dataclass(frozen=True)
class Part:
    """Rows first, ..., end − 1 of `total`."""

    first: int
    end: int
    total: int

    @staticmethod
    def of(total: int, peers: Peers) -> Part:
        """Parts of equal size (to within one row), in the order of the ranks."""
        bounds = [total * rank // peers.size for rank in (peers.rank, peers.rank + 1)]
        return Part(bounds[0], bounds[1], total)

    def __len__(self) -> int:
        return self.end - self.first

    @cached_property
    def rows(self) -> Tensor:
        return torch.arange(self.first, self.end)

    def among(self, rows: Tensor) -> Tensor:
        """Those of the given rows that are in this part."""
        return rows[(rows >= self.first) & (rows < self.end)]
