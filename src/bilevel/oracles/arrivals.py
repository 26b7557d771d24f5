"""Derivatives in many large tensors, gathered into one vector while a backward pass makes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from bilevel.numerics.large_pages import LARGE, empty_like
from bilevel.problem.structure import Structure


class Arrivals:
    """Where the derivatives in some leaves go.

    A large derivative is copied to its place when it arrives, and dropped: its memory serves the
    next one. If all were held until the end, each would take fresh pages, which costs more than
    the copies.

    Args:
        structure: of the leaves in the vector.
        leaves: the tensors that are differentiated; they get hooks if they are large.
        like: a vector to allocate others like.

    `given` is what to hand to the loss in the leaves' place: a loss may itself differentiate in
    what it was given, also in the middle of our pass, and must not meet our hooks.
    """

    def __init__(self, structure: Structure, leaves: Sequence[Tensor], like: Tensor) -> None:
        self._structure, self._like = structure, like
        # Without a reference to this object, or the leaves: a cycle would keep the graph alive.
        self._places = dict[int, Tensor]()
        self._is_worth_it = structure.lends and like.nbytes >= LARGE and len(leaves) > 1
        self.given = leaves
        if self._is_worth_it:
            for number, leaf in enumerate(leaves):
                leaf.register_hook(partial(_take, self._places, number))  # type: ignore[no-untyped-call]
            with torch.enable_grad():
                self.given = [torch.ops.aten.alias(leaf) for leaf in leaves]

    def expect(self) -> Arrivals:
        """Get ready: the next backward pass is the one to gather."""
        if self._is_worth_it:
            self._vector = empty_like(self._like)
            self._places.update(enumerate(self._structure.views(self._vector)))
        return self

    def vector(self, found: Sequence[Tensor]) -> Tensor:
        """The vector, given what the pass has returned."""
        if not self._is_worth_it:
            return self._structure.flat(found, self._like)
        for number, place in self._places.items():  # zeros that the pass did not make, for example
            place.copy_(found[number])
        self._places.clear()
        vector = self._vector
        del self._vector  # it belongs to the caller
        return vector


def _take(places: dict[int, Tensor], number: int, part: Tensor | None) -> Tensor | None:
    if number not in places or part is None or part.is_sparse:
        return None  # nothing to gather, or nothing that fits: `vector` sees to it
    place = places.pop(number).copy_(part)
    # Something of this shape must be returned: one number does.
    return place.new_zeros(()).expand(place.shape)
