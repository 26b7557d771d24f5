"""Losses that autograd can differentiate once but not twice: an error, before a number is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from bilevel.errors import UserError
from bilevel.oracles.derivatives import MARKED_ONCE
from bilevel.problem.losses import nodes, refuse_hidden

_INSTEAD = (
    "use a method of first derivatives, such as bilevel.algorithms.F2SA, or differences: "
    "bilevel.hypergradients.FiniteDifferences"
)


# By what torch's own words contain.
_REMEDIES = {
    "attention": "call the network in torch.nn.attention.sdpa_kernel("
    "torch.nn.attention.SDPBackend.MATH), or ",
    "embedding_bag": "take torch.nn.Embedding and the mean (or sum) of its rows, or ",
}


def refuse_wrong(value: Tensor) -> None:
    """An error where autograd's second derivative would silently be wrong.

    Of code from torch.compile, and of functions marked as once_differentiable, it is zero; of fused
    weight normalisation it holds the norm fixed.
    """
    for node in nodes(value):  # a compiled part deep inside is found too
        refuse_hidden(node)
        made_by = getattr(node, "_forward_cls", None)
        if made_by is not None and getattr(made_by.backward, "__code__", None) is MARKED_ONCE:
            raise UserError(
                f"{made_by.__name__}.backward is marked as once_differentiable, so that second "
                "derivatives through it would be missing: compute it from ctx.saved_tensors by "
                f"torch's own operations and leave out the mark, or {_INSTEAD}"
            )
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
        remedy = next((how for name, how in _REMEDIES.items() if name in str(error)), "")
        raise UserError(
            f"a layer has no second derivative ({error}): {remedy}{_INSTEAD}"
        ) from error
