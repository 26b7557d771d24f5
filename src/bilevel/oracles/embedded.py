"""The features of a batch of tasks at one x, and the pass back from them."""

from __future__ import annotations

import torch
from torch import Tensor

from bilevel.data import Batch, Rows
from bilevel.heads import HeadForm, with_ones
from bilevel.oracles.autograd import Recording


class Embedded:
    """Features, evaluated one task at a time: a task fits the cache better than a batch of tasks.

    Args:
        form: holds the embedding.
        x: the outer variable, to know it again.
        parameters: the part of x that is the embedding's.
        rows: the tasks, to know them again.
        batch: their images.
        graph_bytes: keep the graphs of as many tasks as fit.
    """

    def __init__(
        self,
        form: HeadForm,
        x: Tensor,
        parameters: Tensor,
        rows: Rows,
        batch: Batch,
        graph_bytes: int,
    ) -> None:
        self._form, self._parameters, self._images = form, parameters, batch.data
        self._key = (x, x._version, rows)
        self._kept: dict[int, Recording] = {}
        self.slots = batch.index % form.heads
        room, found = graph_bytes, []
        for i in range(len(batch)):
            if room <= 0:
                found.append(self._evaluate(i))
                continue
            recording = self._record(i)
            room -= recording.bytes
            if room >= 0:
                self._kept[i] = recording
            found.append(recording.value)
        self.values = with_ones(torch.stack(found))

    def is_at(self, x: Tensor, rows: Rows) -> bool:
        """Whether these are the features of the same tasks at the same x."""
        own, version, own_rows = self._key
        if own is not x or version != x._version:
            return False
        same = own_rows is rows
        return same or (own_rows is not None and rows is not None and torch.equal(own_rows, rows))

    def pull(self, of_features: Tensor) -> Tensor:
        """∂/∂parameters ⟨features, of_features⟩."""
        total = torch.zeros_like(self._parameters)
        for i, covector in enumerate(of_features):
            recording = self._kept.pop(i, None) or self._record(i)
            total += recording.pull(covector)
        return total

    def _evaluate(self, i: int) -> Tensor:
        with torch.no_grad():
            return self._embed(self._parameters, i)

    def _record(self, i: int) -> Recording:
        return Recording(lambda parameters: self._embed(parameters, i), self._parameters)

    def _embed(self, parameters: Tensor, i: int) -> Tensor:
        return self._form.embed(self._form.parameters.unflatten(parameters), self._images[i])
