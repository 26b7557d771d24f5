"""A small network with everything that is hard about one, and its truth by unrolling."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import bilevel
from bilevel.problem.draws import key

ROWS, OUTER = 20, 8
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(ROWS, 3, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.randint(0, 2, (ROWS,), generator=GENERATOR)
ALL = bilevel.Batch((X, LABELS), torch.arange(ROWS))
SOME = bilevel.Batch((X[:OUTER], LABELS[:OUTER]), torch.arange(OUTER))


class Net(nn.Module):
    """Batch normalisation, dropout, a layer that is used twice, a frozen bias."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.drop, self.middle = nn.Dropout(dropout), nn.Linear(4, 4)
        self.again, self.last = self.middle, nn.Linear(4, 2)
        self.last.bias.requires_grad_(False)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.drop(self.norm(self.first(rows)).tanh())
        return self.last(self.again(self.middle(hidden).tanh()).tanh())


def net(dropout: float = 0.3) -> Net:
    return _filled(Net(dropout))


def weight_net() -> nn.Module:
    return _filled(nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1), nn.Sigmoid()))


def _filled(module: Any) -> Any:
    module = module.double()
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return module


def each(net: nn.Module, batch: bilevel.Batch) -> Tensor:
    return nn.functional.cross_entropy(net(batch.data[0]), batch.data[1], reduction="none")


def outer(weights: nn.Module, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    return each(net, batch).mean()


def inner(weights: nn.Module, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    losses = each(net, batch)
    ridge = sum(p.square().sum() for p in net.parameters())
    return (weights(losses.detach()[:, None])[:, 0] * losses).mean() + 0.3 * ridge


def problem(dropout: float = 0.3, **changed: Any) -> bilevel.Problem:
    """Meta-Weight-Net: x weighs the rows by their losses."""
    given = {
        "outer": outer,
        "inner": inner,
        "x0": weight_net(),
        "y0": net(dropout),
        "inner_data": (X, LABELS),
        "outer_data": (X[:OUTER], LABELS[:OUTER]),
    }
    return bilevel.Problem(**(given | changed))


class _Pair(nn.Module):
    def __init__(self, x: nn.Module, y: nn.Module) -> None:
        super().__init__()
        self.x, self.y = x, y

    def forward(self, loss: Callable[..., Tensor], batch: bilevel.Batch) -> Tensor:
        return loss(self.x, self.y, batch)


class Unrolled:
    """The same losses as plain functions of named tensors, with the draws of a given key."""

    def __init__(self, dropout: float = 0.3) -> None:
        self._pair = _Pair(weight_net(), net(dropout))
        named = {n: p.detach().clone() for n, p in self._pair.named_parameters()}
        self.x = {n: p.requires_grad_() for n, p in named.items() if n.startswith("x.")}
        frozen = {n for n, p in self._pair.named_parameters() if not p.requires_grad}
        self.fixed = {n: named[n] for n in frozen}
        self.y = {
            n: p.requires_grad_() for n, p in named.items() if n[0] == "y" and n not in frozen
        }
        self.buffers = {n: b.clone() for n, b in self._pair.named_buffers()}

    def loss(
        self, loss: Callable[..., Tensor], batch: bilevel.Batch, number: int, y: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The value, and the buffers after it."""
        state = {**self.x, **y, **self.fixed, **{n: b.clone() for n, b in self.buffers.items()}}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            value = functional_call(self._pair, state, (loss, batch))
        return value, {n: state[n].detach() for n in self.buffers}

    def steps(self, move: Callable[[int, Tensor, Tensor, dict[str, Any]], Tensor], D: int) -> None:
        """D inner steps; `move` gives a tensor's new value from its gradient and a memory."""
        memories: dict[str, dict[str, Any]] = {name: {} for name in self.y}
        for t in range(D):
            value, self.buffers = self.loss(inner, ALL, key(0, 0, "inner", t), self.y)
            slopes = torch.autograd.grad(value, list(self.y.values()), create_graph=True)
            self.y = {
                name: move(t, point, slope, memories[name])
                for (name, point), slope in zip(self.y.items(), slopes, strict=True)
            }

    def hypergradient(self, f: Callable[..., Tensor] = outer) -> Tensor:
        value, _ = self.loss(f, SOME, key(0, 0, "outer", 0), self.y)
        return flat(torch.autograd.grad(value, list(self.x.values()), materialize_grads=True))


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def descent(t: int, point: Tensor, slope: Tensor, memory: dict[str, Any]) -> Tensor:
    return point - 0.1 * slope


def momentum(t: int, point: Tensor, slope: Tensor, memory: dict[str, Any]) -> Tensor:
    memory["m"] = 0.9 * memory.get("m", 0) + slope
    return point - 0.1 * memory["m"]


def adam(t: int, point: Tensor, slope: Tensor, memory: dict[str, Any]) -> Tensor:
    m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * slope
    v = memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * slope.square()
    size = (v / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8
    return point - 0.01 / (1 - 0.9 ** (t + 1)) * m / size


def module_state(module: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(module.state_dict())
