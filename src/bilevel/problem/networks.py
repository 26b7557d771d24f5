"""Modules as variables: a loss receives modules that hold the current tensors."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bilevel.arguments import instance
from bilevel.errors import UserError, quoted
from bilevel.problem.leaves import leaves

Buffers = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Parameters:
    """Some parameters of a module, by name: `parameters` makes it."""

    module: nn.Module
    chosen: Mapping[str, Tensor]


def parameters(module: nn.Module, where: Callable[[str], bool] | None = None) -> Parameters:
    """A module as x0 or y0 of which only some parameters are variables.

    The losses receive the whole module; the other parameters stay as they are.

    Args:
        module: any module; it is copied, never written to.
        where: which parameters, by name; by default all that require a gradient.

    Example:
        The last layer of a network, the others frozen.

        >>> import torch, bilevel
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        >>> list(bilevel.parameters(net, where=lambda name: name.startswith("2.")).chosen)
        ['2.weight', '2.bias']
    """
    instance("module", module, nn.Module, "torch.nn.Linear(2, 1)")
    named = dict(module.named_parameters())
    chosen = {n: p for n, p in named.items() if (p.requires_grad if where is None else where(n))}
    if not chosen:
        what = "requires a gradient" if where is None else "was chosen by `where`"
        raise ValueError(
            f"no parameter of this {type(module).__name__} {what}; it has {list(named)}. A module "
            "without variables is left out: a loss may close over it"
        )
    hooked = [n for n, p in chosen.items() if p._backward_hooks]
    if hooked:
        raise ValueError(
            f"the parameter {quoted(hooked[0])} has a hook on its gradient, which would not run: "
            "change the loss or the module's forward in its place, or leave the parameter out by "
            "bilevel.parameters(net, where=...)"
        )
    return Parameters(module, chosen)


def as_parameters(value: Any) -> Parameters | None:
    """A module, or a selection of its parameters, as `Parameters`; None for anything else."""
    if isinstance(value, nn.Module):
        return parameters(value)
    return value if isinstance(value, Parameters) else None


class _Bound(nn.Module):
    """A loss as a module, so that one `functional_call` swaps the tensors of all the others."""

    def __init__(self, nets: nn.ModuleDict) -> None:
        super().__init__()
        self.nets = nets

    def forward(self, loss: Callable[..., Any], *given: Any) -> Any:
        return loss(*given)


class Networks:
    """The modules among a problem's variables.

    A loss sees copies without values: during a call, the current tensors take their place, so that
    `net(...)`, `net.parameters()` and `net.eval()` all work, and nothing persists but buffers.

    Args:
        modules: by their path, such as "y0" or "x0['net']".

    If `counters` is a set, names of plain integers that a call changes are added to it.
    """

    def __init__(self, modules: Mapping[str, Parameters]) -> None:
        keys = {
            path: f"{i}_{re.sub(r'[^0-9a-zA-Z]+', '_', path)}" for i, path in enumerate(modules)
        }
        whole = nn.ModuleDict({keys[path]: given.module for path, given in modules.items()})
        for name, tensor in _tensors(whole):
            if nn.parameter.is_lazy(tensor):
                raise ValueError(
                    f"{quoted(name.split('.', 1)[1])} has no shape yet (a lazy layer): call the "
                    "module once on some rows first"
                )
        # A tensor that is shared by several modules goes by its first name.
        first = {id(t): f"nets.{n}" for n, t in [*_tensors(whole)][::-1]}
        every = [(f"nets.{n}", first[id(t)]) for n, t in _tensors(whole, remove_duplicate=False)]
        self._tied = [(name, known) for name, known in every if name != known]
        self._names = {
            path: [first[id(t)] for t in given.chosen.values()] for path, given in modules.items()
        }
        variables = [name for names in self._names.values() for name in names]
        for name in variables:
            if variables.count(name) > 1:
                raise ValueError(
                    f"the parameter {quoted(name.split('.', 2)[2])} is a variable twice. If x and "
                    "y start alike but move apart, give one of them as copy.deepcopy(net); if each "
                    "has its part of one net, choose it by bilevel.parameters(net, where=...); if "
                    "two modules share a layer, give both as one torch.nn.ModuleDict"
                )
        fixed = {first[id(p)]: p.detach().clone() for p in whole.parameters()}
        self._fixed = {name: tensor for name, tensor in fixed.items() if name not in variables}
        self.buffers: Buffers = {first[id(b)]: b.detach().clone() for b in whole.buffers()}
        self._bound = _Bound(_skeleton(whole))
        self._modules = {path: self._bound.nets[key] for path, key in keys.items()}
        self._plain = [(part, part.training, dict(part.__dict__)) for part in self._bound.modules()]
        self.counters: set[str] | None = None
        self._empty = [
            (part._buffers, name)
            for part in self._bound.modules()
            for name, buffer in part._buffers.items()
            if buffer is None
        ]

    def all(self) -> Iterator[nn.Module]:
        """All submodules, for inspection."""
        return self._bound.nets.modules()

    def call(
        self, loss: Callable[..., Any], given: Callable[[Put], list[Any]], buffers: Buffers
    ) -> tuple[Any, Buffers]:
        """loss(*given), and the buffers after it.

        Args:
            loss: a function of modules, tensors and batches.
            given: makes its arguments, by a function that returns a module with given tensors.
            buffers: before the call; they are not written to.
        """
        # One dict for all modules: buffers that a module replaces end up there.
        state = {**self._fixed, **{name: b.clone() for name, b in buffers.items()}}

        def put(path: str, tensors: list[Tensor]) -> nn.Module:
            state.update(zip(self._names[path], tensors, strict=True))
            return self._modules[path]

        arguments = given(put)
        for name, known in self._tied:
            state[name] = state[known]
        try:
            value = functional_call(self._bound, state, (loss, *arguments), tie_weights=False)
        finally:
            for part, mode, attributes in self._plain:
                if self.counters is not None:
                    self.counters |= _counters(part, attributes)
                # What a module notes about a call (a count, features with their graph) is in no
                # state: a repeated step would see what later calls have left.
                part.__dict__.clear()
                part.__dict__.update(attributes)
                part.training = mode  # a loss may call .eval(); not every kind has it in __dict__
            for kept, name in self._empty:  # and a module may fill an empty buffer
                kept[name] = None
        return value, {name: state[name].detach() for name in buffers}

    def copy(self, path: str, tensors: Mapping[str, list[Tensor]], buffers: Buffers) -> nn.Module:
        """An independent copy of a module, with these tensors (of all modules, by path)."""
        now = {**self._fixed, **buffers}
        for other, given in tensors.items():
            now.update(zip(self._names[other], given, strict=True))
        memo: dict[int, Any] = {}
        for name, empty in _tensors(self._bound):
            memo[id(empty)] = _like(empty, now[name].detach().clone())
        copied = copy.deepcopy(self._modules[path], memo)
        for part in _weight_norms(copied):
            del part.forward
        return copied


def _counters(part: nn.Module, before: Mapping[str, Any]) -> set[str]:
    """The integers among a module's attributes that a call has changed."""
    kind, now = type(part).__name__, part.__dict__.items()
    return {f"{kind}.{n}" for n, v in now if type(v) is int and v != before.get(n)}


Put = Callable[[str, list[Tensor]], nn.Module]


def evaluation_mode(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The same loss, with every module that it receives in evaluation mode.

    Dropout is off, and batch normalisation uses the statistics accumulated in training so far.
    Usually for f: `Problem(outer=bilevel.evaluation_mode(outer), ...)`. After the call the modules
    are as they were.

    Example:
        >>> import torch, bilevel
        >>> def outer(x, net):
        ...     return (net(torch.ones(1, 4)) * x).sum()
        >>> net, judged = torch.nn.Dropout(0.5), bilevel.evaluation_mode(outer)
        >>> judged(torch.ones(()), net), net.training
        (tensor(4.), True)
    """
    return _Evaluated(loss)


@dataclass(frozen=True)
class _Evaluated:
    loss: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        roots = [module for module in leaves(given[:2]) if isinstance(module, nn.Module)]
        modes = [(module, module.training) for root in roots for module in root.modules()]
        for root in roots:
            root.eval()
        try:
            return self.loss(*given)
        finally:  # in an own loop the modules are the caller's
            for module, mode in modes:
                module.training = mode


def _tensors(module: nn.Module, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=remove_duplicate)
    yield from module.named_buffers(remove_duplicate=remove_duplicate)


def _skeleton(module: nn.ModuleDict) -> nn.ModuleDict:
    """A copy whose tensors are NaN and take no memory, so that one that is not replaced shows.

    Not on the device "meta", where products with real tensors silently give garbage.
    """
    memo: dict[int, Any] = {}
    for _, tensor in _tensors(module):
        real = tensor.is_floating_point() or tensor.is_complex()
        empty = tensor.new_full((), float("nan")).expand(tensor.shape) if real else tensor.clone()
        memo[id(tensor)] = _like(tensor, empty.detach())
    for part in module.modules():
        # What a hook computes before each call, as pruning does, is no leaf: deepcopy refuses it.
        for value in vars(part).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.new_full((), float("nan")).expand(value.shape)
    try:
        skeleton = copy.deepcopy(module, memo)
    except Exception as error:
        raise UserError(
            f"the module cannot be copied ({type(error).__name__}: {error}): leave out what cannot "
            "be, such as open files, locks and, unless detached, results of earlier calls"
        ) from error
    for part in _weight_norms(skeleton):
        part.forward = _WeightNorm(part.dim)
    return skeleton


def _weight_norms(module: nn.Module) -> list[Any]:
    kind = getattr(nn.utils.parametrizations, "_WeightNorm", ())
    return [part for part in module.modules() if isinstance(part, kind)]


@dataclass(frozen=True)
class _WeightNorm:
    """g v/‖v‖ by plain operations: the second derivative of torch's own holds ‖v‖ fixed."""

    dim: int

    def __call__(self, g: Tensor, v: Tensor) -> Tensor:
        others = [d for d in range(v.dim()) if self.dim == -1 or d != self.dim % v.dim()]
        length = torch.linalg.vector_norm(v, dim=others, keepdim=self.dim != -1)
        return v.mul(g / length)


def _like(example: Tensor, value: Tensor) -> Tensor:
    if isinstance(example, nn.Parameter):
        return nn.Parameter(value, requires_grad=example.requires_grad)
    return value
