"""Automatic differentiation: the only file that calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

# What `argmin` needs to be differentiable itself, to any order and in batches.
Function = torch.autograd.Function
vmap = torch.func.vmap
# The code of each backward pass that is marked as once_differentiable.
MARKED_ONCE = torch.autograd.function.once_differentiable(print).__code__
UNKNOWN = 2**50  # bytes: more than there are
Made = TypeVar("Made")


def derivatives(
    values: Sequence[Tensor],
    variables: Sequence[Tensor],
    along: Sequence[Tensor] | None = None,
    **how: bool,
) -> list[Tensor]:
    """Those of Σ ⟨value, direction⟩, or of one value; zeros for variables that it does not use.

    Args:
        values: one number if there are no directions.
        variables: what to differentiate by.
        along: a direction for each value.
        how: `create_graph` or `retain_graph`.

    Example:
        >>> y = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> derivatives([y**3], [y], [torch.ones(2)])
        [tensor([ 3., 12.])]
    """
    used = [number for number, value in enumerate(values) if value.requires_grad]
    if not used:
        return [torch.zeros_like(variable) for variable in variables]
    directions = None if along is None else [along[number] for number in used]
    outputs = [values[number] for number in used]
    found = torch.autograd.grad(outputs, variables, directions, materialize_grads=True, **how)
    # Embeddings may give sparse gradients, which do not go into a flat vector.
    return [part if part.layout == torch.strided else part.to_dense() for part in found]


def measured(make: Callable[[], Made]) -> tuple[Made, int]:
    """What is made, and how many bytes the graphs built meanwhile hold; `UNKNOWN` if a loss uses
    torch.func.grad and the like, which do not let anyone look.

    Example:
        >>> measured(lambda: torch.ones(4, requires_grad=True).exp().sum())[1]  # four floats
        16
    """
    try:
        with (saved := _Saved()):
            made = make()
        return made, saved.bytes
    except RuntimeError as error:
        if "saved tensor hooks" not in str(error):
            raise
        return make(), UNKNOWN


class _Saved(torch.autograd.graph.saved_tensors_hooks):
    """Records what the graphs built inside it save for their backward passes."""

    def __init__(self) -> None:
        self._found = dict[int, int]()
        super().__init__(self._note, lambda tensor: tensor)

    @property
    def bytes(self) -> int:
        return sum(self._found.values())

    def _note(self, tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:  # a sparse matrix is the user's data, kept in any case
            # By storage, so that views of one buffer count once.
            storage = tensor.untyped_storage()
            self._found[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would hold the graph that holds it: a leak
