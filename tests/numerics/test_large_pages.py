"""Room for long vectors is used again, but never while somebody holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bilevel.numerics.large_pages import empty_like

LONG = torch.zeros(2**20 + 3)


def _made(view: Callable[[Tensor], Any]) -> tuple[int, Any]:
    """Where a vector lies, and what alone still holds it."""
    vector = empty_like(LONG).fill_(1.0)
    return vector.data_ptr(), view(vector)


def test_what_is_held_is_not_written_over() -> None:
    for view in (lambda v: v[5:9], lambda v: v.detach().view(-1), lambda v: v.numpy()):
        place, held = _made(view)
        others = [empty_like(LONG).fill_(2.0) for _ in range(3)]
        assert place not in {other.data_ptr() for other in others}
        assert (torch.as_tensor(held) == 1).all()
    many = [empty_like(LONG).fill_(float(i)) for i in range(9)]
    assert len({vector.data_ptr() for vector in many}) == 9
    assert all((vector == i).all() for i, vector in enumerate(many))


def test_what_nobody_holds_is_used_again() -> None:
    kept = empty_like(LONG)
    place = kept.data_ptr()
    del kept
    places = set()
    for _ in range(5):
        places.add(empty_like(LONG).data_ptr())
    assert place in places
    assert len(places) == 1
