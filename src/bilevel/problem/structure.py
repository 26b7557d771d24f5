"""The user's variables as one flat vector, and back.

Below the problem every variable is one contiguous 1-D tensor. A `Structure` remembers how
the user's tensors lie in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from bilevel.errors import UserError, quoted
from bilevel.numerics.large_pages import empty_like
from bilevel.problem.networks import Parameters, as_parameters

Variables = Any  # a tensor, a module, or a dict / tuple / list of such


class _Module(NamedTuple):
    """The place of a module in a skeleton, and the names of its variables."""

    path: str
    names: tuple[str, ...]


def _named(module: _Module, tensors: list[Tensor]) -> Any:
    return dict(zip(module.names, tensors, strict=True))


class Structure:
    """The layout of a tensor, a module, or a dict, tuple or list of them in one flat vector.

    Example:
        >>> structure = Structure("x0", {"w": torch.ones(2, 2), "b": torch.zeros(2)})
        >>> flat = structure.flatten({"w": torch.ones(2, 2), "b": torch.zeros(2)})
        >>> flat
        tensor([1., 1., 1., 1., 0., 0.])
        >>> structure.unflatten(flat)["b"]
        tensor([0., 0.])
    """

    # Whether `leaves` are made for the caller alone, who may hang hooks on them.
    lends: ClassVar[bool] = True

    def __init__(self, name: str, example: Variables) -> None:
        refuse_inference_mode()
        self.name = name
        named = list(_leaves(name, example))
        if not named:
            raise ValueError(f"{name} holds no tensor: {quoted(example)}")
        for path, leaf in named:
            _check_leaf(path, leaf)
        self.dtype, self.device = named[0][1].dtype, named[0][1].device
        for path, leaf in named:
            _check_alike(path, leaf, named[0][0], self.dtype, self.device)
        self._skeleton = _skeleton(name, example)
        parts = _parts(name, example)
        self.modules = {path: part for path, part in parts if isinstance(part, Parameters)}
        self._paths = [path for path, _ in named]
        self._shapes = [leaf.shape for _, leaf in named]
        self._sizes = [leaf.numel() for _, leaf in named]
        self.size = sum(self._sizes)
        # A single vector is its own flat form: the losses, called often, need no view.
        self.is_flat = self._skeleton is None and len(self._shapes[0]) == 1
        if self.size == 0:
            raise ValueError(f"{name} has no elements: shapes {[tuple(s) for s in self._shapes]}")

    def flatten(self, value: Variables) -> Tensor:
        """A fresh flat copy of `value`, which must have this structure."""
        named = list(_leaves(self.name, _unpacked(value, self._skeleton)))
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
        """`flatten` for a value that the library made: unchecked and differentiable."""
        return torch.cat([leaf.reshape(-1) for _, leaf in _leaves(self.name, value)])

    def tensors(self, value: Variables) -> list[Tensor]:
        """The tensors of a value of this structure, unchanged, with their graphs."""
        return [leaf for _, leaf in _leaves(self.name, value)]

    def point(self, value: Variables) -> Tensor:
        """`flatten` for a point from the user, whose values must be finite."""
        if isinstance(value, Tensor) and value.shape == (self.size,):  # such as problem.x0
            _check_alike(self.name.removesuffix("0"), value, self.name, self.dtype, self.device)
            flat = value.detach().clone()
        else:
            flat = self.flatten(value)
        _check_finite(self.name.removesuffix("0"), flat)
        return flat

    def unflatten(self, flat: Tensor) -> Variables:
        """Views of `flat` in the user's structure, a module as a dict; differentiable."""
        return self.build(self.views(flat))

    def views(self, flat: Tensor) -> list[Tensor]:
        """The user's tensors, in order, as views of `flat`; differentiable."""
        if self.is_flat:
            return [flat]
        if self._skeleton is None:
            return [flat.view(self._shapes[0])]
        parts = torch.split(flat, self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def leaves(self, flat: Tensor) -> list[Tensor]:
        """The same as leaves of autograd, in the memory of `flat`: it must not change meanwhile."""
        return [view.requires_grad_() for view in self.views(flat.detach())]

    def build(
        self, tensors: Sequence[Tensor], module: Callable[[_Module, list[Tensor]], Any] = _named
    ) -> Variables:
        """These tensors in the user's structure; `module` makes its modules."""
        if self._skeleton is None:
            return tensors[0]
        return _rebuild(self._skeleton, iter(tensors), module)

    def flat(self, tensors: Sequence[Tensor], like: Tensor) -> Tensor:
        """These tensors as one detached vector, allocated like another."""
        if len(tensors) == 1:
            return tensors[0].detach().reshape(-1)
        # `reshape`, as the gradients of convolutions are not contiguous.
        parts = [tensor.detach().reshape(-1) for tensor in tensors]
        return torch.cat(parts, out=empty_like(like))


def refuse_inference_mode() -> None:
    """There autograd records nothing, and every derivative would be zero."""
    if torch.is_inference_mode_enabled():
        raise UserError(
            "no derivative can be taken inside torch.inference_mode(): leave the block, or use "
            "torch.no_grad() in its place, which bilevel can work in"
        )


def _parts(path: str, value: Variables) -> Iterator[tuple[str, Any]]:
    """The modules and tensors, each with its path."""
    if (given := as_parameters(value)) is not None:
        yield path, given
    elif isinstance(value, Mapping | tuple | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _parts(f"{path}[{quoted(key)}]", item)
    else:
        yield path, value


def _leaves(name: str, value: Variables) -> Iterator[tuple[str, Any]]:
    for path, part in _parts(name, value):
        if isinstance(part, Parameters):
            yield from _parts(path, part.chosen)
        else:
            yield path, part


def _skeleton(path: str, value: Variables) -> Any:
    """The containers of `value` with every tensor replaced by None."""
    if (given := as_parameters(value)) is not None:
        return _Module(path, tuple(given.chosen))
    if isinstance(value, dict):
        return {key: _skeleton(f"{path}[{quoted(key)}]", item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return made_like(value, [_skeleton(f"{path}[{i}]", item) for i, item in enumerate(value)])
    return None


def made_like(example: Any, items: Iterable[Any]) -> Any:
    """These items as a list, tuple or named tuple, whichever the example is."""
    return getattr(example, "_make", tuple if isinstance(example, tuple) else list)(items)


def _rebuild(skeleton: Any, tensors: Iterator[Tensor], module: Callable[..., Any]) -> Variables:
    if isinstance(skeleton, _Module):
        return module(skeleton, [next(tensors) for _ in skeleton.names])
    if isinstance(skeleton, dict):
        return {key: _rebuild(item, tensors, module) for key, item in skeleton.items()}
    if isinstance(skeleton, tuple | list):
        return made_like(skeleton, [_rebuild(item, tensors, module) for item in skeleton])
    return next(tensors)


def _unpacked(value: Variables, skeleton: Any) -> Variables:
    """The value, with each module replaced by those of its parameters that are variables."""
    if isinstance(skeleton, _Module) and isinstance(value, torch.nn.Module):
        named = dict(value.named_parameters())
        return {name: named[name] for name in skeleton.names if name in named}
    if isinstance(skeleton, dict) and isinstance(value, dict):
        return {key: _unpacked(item, skeleton.get(key)) for key, item in value.items()}
    plain = isinstance(skeleton, tuple | list) and not isinstance(skeleton, _Module)
    if plain and isinstance(value, tuple | list) and len(value) == len(skeleton):
        return [_unpacked(*pair) for pair in zip(value, skeleton, strict=True)]
    return value


def _check_leaf(path: str, leaf: Any) -> None:
    if not isinstance(leaf, Tensor):
        raise TypeError(
            f"{path} must be a tensor, a module, or a dict, tuple or list of such; "
            f"got {type(leaf).__name__} {quoted(leaf)}. What is no variable is left out: a loss "
            "may close over it"
        )
    if torch.nn.parameter.is_lazy(leaf):
        raise ValueError(
            f"{path} has no shape yet (a lazy layer): call the module once on some rows first"
        )
    if not leaf.is_floating_point():
        instead = f"torch.view_as_real({path})" if leaf.is_complex() else f"{path}.double()"
        raise ValueError(
            f"{path} has dtype {leaf.dtype}: only real floating-point tensors can be optimised. "
            + ("Keep real and imaginary part" if leaf.is_complex() else "Convert it")
            + f", for example with {instead}, or leave out what is no variable: a loss may close "
            "over it."
        )
    if isinstance(leaf, torch.nn.Parameter) and not leaf.requires_grad:
        raise ValueError(
            f"{path} is a frozen parameter (requires_grad=False), so it needs no gradient. "
            "Leave it out of the variables and close over it, or unfreeze it."
        )
    if leaf.layout != torch.strided:
        raise ValueError(f"{path} has layout {leaf.layout}: variables must be dense tensors")
    if not leaf.is_meta:  # meta tensors hold no values
        with suppress(RuntimeError):  # and inside a vmap they cannot be looked at
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
                + mixed(mine, theirs)
            )


def mixed(*dtypes: Any) -> str:
    """A remark where a half precision meets another one."""
    if not {torch.bfloat16, torch.float16} & {*dtypes}:
        return ""
    return (
        " For mixed precision keep both in float32 and call the network inside "
        'torch.autocast("cpu", torch.bfloat16) in the loss.'
    )
