"""What a call of a loss depends on besides x and y: its rows, its random numbers, its buffers.

A loss may draw random numbers (dropout, augmentation, noise). A step is differentiated correctly
only if the same numbers are drawn as when it was taken: a dropout mask is a part of the batch. So
each call has a key (seed, outer step, loss, number of the call), which seeds the global generators
around it. Going back over a step reuses its `Draw`.
"""

from __future__ import annotations

import torch

from bilevel.problem.chance import Chance, key
from bilevel.problem.networks import Buffers
from bilevel.problem.sources import Batch, Rows, Source

_READ = "batches read for "  # among a state's buffers: how far a stream has been read


class Draw:
    """The rows, the random numbers and the buffers of one call, so that it can be repeated.

    Args:
        rows: their numbers; None for all.
        number: the seed of what the loss draws.
        buffers: of the modules among the variables, before the call.
        batch: the data, if they have been read already.
    """

    __slots__ = ("_batch", "buffers", "number", "rows")

    def __init__(
        self,
        rows: Rows,
        number: int = 0,
        buffers: Buffers | None = None,
        batch: Batch | None = None,
    ) -> None:
        self.rows, self.number, self.buffers, self._batch = rows, number, buffers or {}, batch

    def batch(self, data: Source, chance: Chance) -> Batch:
        """The data of these rows: read only once if a second reading could give other data."""
        if self._batch is not None:
            return self._batch
        if data.is_fixed:
            return data.batch(self.rows)
        # With a seed of its own: the loss must draw the same whether or not the rows are read.
        with chance.every().seeded(self.number ^ 1):
            batch = data.batch(self.rows)
        if self.rows is not None or chance.names:  # all rows, D times, could fill memory
            self._batch = batch
        return batch


class Moment:
    """An outer step as the losses see it.

    Args:
        seed, step: identify the step.
        state: buffers by name, and how many batches of streams were read before.
        rank: among several processes, which draw different numbers for their different rows.

    `buffers` holds the current ones.
    """

    def __init__(self, seed: int, step: int, state: Buffers, rank: int = 0) -> None:
        # The first process draws as a single one would.
        self._key: tuple[int, ...] = (seed, step, rank) if rank else (seed, step)
        self._calls = {"inner": 0, "outer": 0}
        self._read = {n: int(t) for n, t in state.items() if n.startswith(_READ)}
        self.buffers: Buffers = {n: t for n, t in state.items() if n not in self._read}

    def number(self, loss: str) -> int:
        """The key of the next call."""
        call = self._calls[loss]
        self._calls[loss] = call + 1
        return key(*self._key, loss, call)

    def next_batch(self, loss: str, data: Source) -> Batch:
        """The next batch of a stream."""
        name = f"{_READ}{loss}"
        number = self._read.get(name, 0)
        self._read[name] = number + 1
        return data.at(number, self._key[0])

    def state(self) -> Buffers:
        """What the next step starts from."""
        return {**self.buffers, **{name: torch.tensor(n) for name, n in self._read.items()}}
