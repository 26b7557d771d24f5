"""How much memory graphs take."""

from __future__ import annotations

import torch
from torch import Tensor


class Saved:
    """Records what the graphs built inside it save for their backward passes."""

    def __enter__(self) -> Saved:
        self._found = dict[int, int]()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._note, _unchanged)
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    @property
    def bytes(self) -> int:
        return sum(self._found.values())

    def _note(self, tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:  # a sparse matrix is the user's data, kept in any case
            # By storage, so that views of one buffer count once.
            storage = tensor.untyped_storage()
            self._found[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would hold the graph that holds it: a leak


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor
