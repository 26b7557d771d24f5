"""The features of a batch of tasks at one x, and the backward pass from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor

from bilevel.models.heads.form import HeadForm, with_ones
from bilevel.models.heads.recording import Passes, Scratch, SelfDifferentiating
from bilevel.oracles.autograd import Recording
from bilevel.problem.sources import Batch, Rows

T = TypeVar("T")


class Embedded:
    """Features, evaluated one task at a time: a task fits the cache better than a batch of tasks.

    With an embedding that knows its own derivative, as many tasks at a time as there are threads.

    Args:
        form: holds the embedding.
        x: the outer variable, to recognise it.
        parameters: the embedding's part of x.
        rows: the tasks, to recognise them.
        batch: their images.
        graph_bytes: the graphs of as many tasks are kept as fit into this.
        scratch: for embeddings that know their own derivative.
    """

    def __init__(
        self,
        form: HeadForm,
        x: Tensor,
        parameters: Tensor,
        rows: Rows,
        batch: Batch,
        graph_bytes: int,
        scratch: Scratch,
    ) -> None:
        self._form, self._parameters, self._images = form, parameters, batch.data
        self._key, self._scratch = (x, x._version, rows), scratch
        self._kept: dict[int, Recording | Passes] = {}
        self._explicit = self._find_explicit()
        self.slots = batch.index % form.heads
        self._room, self._lock = graph_bytes, Lock()
        self.values = with_ones(torch.stack(self._each(self._features)))

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
        for part in self._each(lambda i: self._pull(i, of_features[i])):
            total += part
        return total

    def _each(self, function: Callable[[int], Tensor]) -> list[Tensor]:
        """The function of every task; with automatic differentiation, in a single thread."""
        tasks = range(len(self._images))
        if self._explicit is None:
            return [function(i) for i in tasks]
        return side_by_side(function, tasks)

    def _features(self, i: int) -> Tensor:
        """The features, with what the backward pass needs if there is room."""
        if self._room <= 0:
            return self._evaluate(i)
        recording = self._record(i)
        with self._lock:
            self._room -= recording.bytes
            is_kept = self._room >= 0
        if is_kept:
            self._kept[i] = recording
        elif isinstance(recording, Passes):
            recording.forget()
        return recording.value

    def _pull(self, i: int, covector: Tensor) -> Tensor:
        recording = self._kept.pop(i) if i in self._kept else self._record(i)
        if isinstance(recording, Recording):
            return recording.pull(covector)
        structure, found = self._form.parameters, recording.pull(covector)
        return structure.join({name: found[name] for name in structure.unflatten(self._parameters)})

    def _evaluate(self, i: int) -> Tensor:
        if self._explicit is None:
            with torch.no_grad():
                return self._embed(self._parameters, i)
        passes = self._passes(self._explicit, i)
        passes.forget()
        return passes.value

    def _record(self, i: int) -> Recording | Passes:
        if self._explicit is None:
            return Recording(lambda parameters: self._embed(parameters, i), self._parameters)
        return self._passes(self._explicit, i)

    def _find_explicit(self) -> SelfDifferentiating | None:
        """The embedding, if it knows its own derivative."""
        embedding = self._form.embedding
        if not isinstance(embedding, SelfDifferentiating) or not len(self._images):
            return None
        parameters = self._form.parameters.unflatten(self._parameters)
        return embedding if embedding.serves(parameters, self._images[0]) else None

    def _passes(self, embedding: SelfDifferentiating, i: int) -> Passes:
        parameters = self._form.parameters.unflatten(self._parameters)
        return embedding.passes(parameters, self._images[i], self._scratch)

    def _embed(self, parameters: Tensor, i: int) -> Tensor:
        return self._form.embed(self._form.parameters.unflatten(parameters), self._images[i])


def side_by_side(function: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
    """The function applied to each number, in as many threads as torch uses.

    Torch's threads synchronise after every operation, tasks only once. In these threads, each torch
    operation uses one thread; elsewhere nothing changes.

    Example:
        >>> side_by_side(lambda i: i * i, [1, 2, 3])
        [1, 4, 9]
    """
    count = torch.get_num_threads()
    if min(count, len(numbers)) <= 1:
        return [function(number) for number in numbers]
    try:
        # A thread sets this for itself, and for the threads that are started later.
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(function, numbers))
    finally:
        torch.set_num_threads(count)
