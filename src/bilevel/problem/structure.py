"""The user's variables as one flat vector, and back.

Below the problem every variable is one contiguous 1-D tensor. A `Structure` remembers how
the user's tensors lie in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

Variables = Any  # a tensor, or a dict / tuple / list of such


class Structure:
    """How a tensor, or a dict, tuple or list of tensors, lies in one flat vector.

    Example:
        >>> structure = Structure("x0", {"w": torch.ones(2, 2), "b": torch.zeros(2)})
        >>> flat = structure.flatten({"w": torch.ones(2, 2), "b": torch.zeros(2)})
        >>> flat
        tensor([1., 1., 1., 1., 0., 0.])
        >>> structure.unflatten(flat)["b"]
        tensor([0., 0.])
    """

    def __init__(self, name: str, example: Variables) -> None:
        self.name = name
        named = list(_leaves(name, example))
        if not named:
            raise ValueError(f"{name} holds no tensor: {example!r}")
        for path, leaf in named:
            _check_leaf(path, leaf)
        self.dtype, self.device = named[0][1].dtype, named[0][1].device
        for path, leaf in named:
            _check_alike(path, leaf, named[0][0], self.dtype, self.device)
        self._skeleton = _skeleton(example)
        self._paths = [path for path, _ in named]
        self._shapes = [leaf.shape for _, leaf in named]
        self._sizes = [leaf.numel() for _, leaf in named]
        self.size = sum(self._sizes)
        # One vector is its own flat form: the losses are called often, and need no view of it.
        self.is_flat = self._skeleton is None and len(self._shapes[0]) == 1
        if self.size == 0:
            raise ValueError(f"{name} has no elements: shapes {[tuple(s) for s in self._shapes]}")

    def flatten(self, value: Variables) -> Tensor:
        """A fresh flat copy of `value`, which must have this structure."""
        named = list(_leaves(self.name, value))
        if [path for path, _ in named] != self._paths:
            raise ValueError(
                f"{self.name} was given as {self._paths}, but now as {[path for path, _ in named]}"
            )
        for (path, leaf), shape in zip(named, self._shapes, strict=True):
            if not isinstance(leaf, Tensor) or leaf.shape != shape:
                got = f"shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else repr(leaf)
                raise ValueError(f"{path} must be a tensor of shape {tuple(shape)}, got {got}")
            _check_alike(path, leaf, self.name, self.dtype, self.device)
        return torch.cat([leaf.detach().reshape(-1) for _, leaf in named])

    def join(self, value: Variables) -> Tensor:
        """`flatten` for a value that the library made: unchecked, and differentiable."""
        return torch.cat([leaf.reshape(-1) for _, leaf in _leaves(self.name, value)])

    def point(self, value: Variables) -> Tensor:
        """`flatten`, for a point that the user gives: its numbers must be finite."""
        flat = self.flatten(value)
        _check_finite(self.name.removesuffix("0"), flat)
        return flat

    def unflatten(self, flat: Tensor) -> Variables:
        """Views of `flat` in the user's structure; differentiable."""
        if self._skeleton is None:
            return flat.view(self._shapes[0])
        parts = torch.split(flat, self._sizes)
        views = (part.view(shape) for part, shape in zip(parts, self._shapes, strict=True))
        return _rebuild(self._skeleton, views)


def _leaves(path: str, value: Variables) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{path}[{key!r}]", item)
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from _leaves(f"{path}[{number}]", item)
    else:
        yield path, value


def _skeleton(value: Variables) -> Any:
    """The containers of `value` with every tensor replaced by None."""
    if isinstance(value, dict):
        return {key: _skeleton(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [_skeleton(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return None


def _rebuild(skeleton: Any, views: Iterator[Tensor]) -> Variables:
    if isinstance(skeleton, dict):
        return {key: _rebuild(item, views) for key, item in skeleton.items()}
    if isinstance(skeleton, tuple | list):
        items = [_rebuild(item, views) for item in skeleton]
        return tuple(items) if isinstance(skeleton, tuple) else items
    return next(views)


def _check_leaf(path: str, leaf: Any) -> None:
    if not isinstance(leaf, Tensor):
        raise TypeError(
            f"{path} must be a tensor, or a dict, tuple or list of tensors; "
            f"got {type(leaf).__name__} {leaf!r}"
        )
    if not leaf.is_floating_point():
        raise ValueError(
            f"{path} has dtype {leaf.dtype}: only real floating-point tensors can be optimised. "
            f"Convert it, for example with {path}.double()."
        )
    if isinstance(leaf, torch.nn.Parameter) and not leaf.requires_grad:
        raise ValueError(
            f"{path} is a frozen parameter (requires_grad=False), so it needs no gradient. "
            "Leave it out of the variables and close over it, or unfreeze it."
        )
    if leaf.layout != torch.strided:
        raise ValueError(f"{path} has layout {leaf.layout}: variables must be dense tensors")
    if not leaf.is_meta:  # meta tensors hold no values
        _check_finite(path, leaf)


def _check_finite(path: str, leaf: Tensor) -> None:
    if not torch.isfinite(leaf).all():
        count = int((~torch.isfinite(leaf)).sum())
        raise ValueError(
            f"{path} holds {count} values that are NaN or infinite: start from finite ones"
        )


def _check_alike(
    path: str, leaf: Tensor, other: str, dtype: torch.dtype, device: torch.device
) -> None:
    for what, mine, theirs in (("dtype", leaf.dtype, dtype), ("device", leaf.device, device)):
        if mine != theirs:
            raise ValueError(
                f"{path} has {what} {mine} but {other} has {theirs}: "
                f"all variables must share one {what}. Convert one with .to({theirs})."
            )
