"""Losses that autograd can differentiate once but not twice: an error, before a number is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from bilevel.errors import UserError

_INSTEAD = (
    "use a method of first derivatives, such as bilevel.algorithms.F2SA, or differences: "
    "bilevel.hypergradients.FiniteDifferences"
)


def refuse_compiled(value: Tensor) -> None:
    """Code from torch.compile has no second derivative: autograd would silently return zero."""
    # By the graph: nothing is computed, and a compiled part deep inside is found too.
    seen, ahead = set[Any](), [value.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name().startswith("CompiledFunction"):
            raise UserError(
                "the inner loss is compiled by torch.compile, whose code cannot be differentiated "
                "twice: hand over what was not compiled (of a module, its _orig_mod), compile with "
                f'backend="eager", or {_INSTEAD}'
            )
        ahead.extend(following for following, _ in node.next_functions)


@contextmanager
def told() -> Iterator[None]:
    """Say in words what a layer without a second derivative means."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        if "is not implemented" not in str(error):
            raise
        raise UserError(
            f"a layer has no second derivative ({error}): for attention, call the network in "
            f"torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH); else {_INSTEAD}"
        ) from error
