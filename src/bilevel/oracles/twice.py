"""Losses that autograd can differentiate once but not twice: an error, before a number is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from bilevel.errors import UserError
from bilevel.problem.losses import nodes

_INSTEAD = (
    "use a method of first derivatives, such as bilevel.algorithms.F2SA, or differences: "
    "bilevel.hypergradients.FiniteDifferences"
)


def refuse_wrong(value: Tensor) -> None:
    """An error where autograd's second derivative would silently be wrong.

    Of code from torch.compile it is zero; of fused weight normalisation it holds the norm fixed.
    """
    for node in nodes(value):  # a compiled part deep inside is found too
        if node.name().startswith("WeightNormInterface"):
            raise UserError(
                "torch's second derivative of weight_norm is wrong: give the module to the losses "
                "as x0 or y0 (or a part of them), where that of torch.nn.utils.parametrizations "
                "(not the older torch.nn.utils.weight_norm) is replaced by a right one, or "
                f"{_INSTEAD}"
            )
        if node.name().startswith("CompiledFunction"):
            raise UserError(
                "the inner loss is compiled by torch.compile, whose code cannot be differentiated "
                "twice: pass what was not compiled (for a module, its _orig_mod), compile with "
                f'backend="eager", or {_INSTEAD}'
            )


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
