"""ITD through the layers of ordinary networks, against an unrolled loop with the same draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bilevel
from bilevel.problem.draws import key

_F64 = torch.float64
ROWS = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=_F64)
TOKENS = torch.arange(18).reshape(6, 3) % 5
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
D = 3


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cells = kind(2, 3, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(3, 3)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.cells(rows.view(-1, 4, 2))[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(2, 4), nn.Linear(4, 3)
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.2, batch_first=True)

    def forward(self, rows: Tensor) -> Tensor:
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            return self.head(self.layer(self.first(rows.view(-1, 4, 2))).mean(1))


class TiedWords(nn.Module):
    """The embedding is the last layer's weight, too."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4, sparse=sparse)
        self.last = nn.Linear(4, 5, bias=False)
        self.last.weight = self.words.weight

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(self.words(TOKENS).mean(1).tanh())


def image_net() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 4, 2),
        nn.GroupNorm(2, 4),
        nn.Dropout2d(0.3),
        nn.ELU(inplace=True),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


def parametrised(how: Any) -> nn.Module:
    return nn.Sequential(how(nn.Linear(8, 5)), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 3))


KINDS: dict[str, Any] = {
    "gru": lambda: Recurrent(nn.GRU),
    "lstm": lambda: Recurrent(nn.LSTM),
    "attention": Attention,
    "tied embedding": TiedWords,
    "image": image_net,
    "weight norm": lambda: parametrised(nn.utils.parametrizations.weight_norm),
    "spectral norm": lambda: parametrised(nn.utils.parametrizations.spectral_norm),
    "orthogonal": lambda: parametrised(nn.utils.parametrizations.orthogonal),
}


def made(kind: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module: nn.Module = KINDS[kind]().double()
    return module


def inner(x: Tensor, net: nn.Module) -> Tensor:
    losses = nn.functional.cross_entropy(net(ROWS), LABELS, reduction="none")
    noise = torch.randn(6, dtype=losses.dtype).exp()  # weights that a loss draws itself
    return (x.exp() * noise * losses).mean()


def outer(x: Tensor, net: nn.Module) -> Tensor:
    return nn.functional.cross_entropy(net(ROWS), LABELS)


class Bound(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, loss: Any, x: Tensor) -> Tensor:
        return loss(x, self.net)


def unrolled(net: nn.Module, x: Tensor, lr: float = 0.1) -> Tensor:
    bound = Bound(net)
    buffers = {n: b.clone() for n, b in bound.named_buffers()}
    y = {n: p.detach().clone().requires_grad_() for n, p in bound.named_parameters()}

    def called(loss: Any, number: int) -> Tensor:
        state = {**y, **{n: b.clone() for n, b in buffers.items()}}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            value = functional_call(bound, state, (loss, x))
        if loss is inner:
            buffers.update({n: state[n].detach() for n in buffers})
        return value

    for t in range(D):
        value = called(inner, key(0, 0, "inner", t))
        slopes = torch.autograd.grad(value, list(y.values()), create_graph=True)
        y = {n: p - lr * s for (n, p), s in zip(y.items(), slopes, strict=True)}
    return torch.autograd.grad(called(outer, key(0, 0, "outer", 0)), x)[0]


@pytest.mark.parametrize("memory", [1, "256MB"])
@pytest.mark.parametrize("kind", KINDS)
def test_itd_is_the_unrolled_gradient(kind: str, memory: Any) -> None:
    x = torch.linspace(-1, 1, 6, dtype=_F64)
    exact = unrolled(made(kind), x.clone().requires_grad_())
    found = bilevel.hypergradient(
        bilevel.Problem(outer, inner, x, made(kind)),
        x,
        made(kind),
        bilevel.ITD(memory=memory),
        bilevel.inner.Steps(bilevel.updates.Descent(0.1), D),
    )
    assert exact.abs().max() > 1e-4
    torch.testing.assert_close(found.value, exact, rtol=1e-8, atol=1e-8 * float(exact.abs().max()))


def test_sparse_gradients_of_embeddings_are_those_of_dense_ones() -> None:
    found = []
    for sparse in (False, True):
        net = TiedWords(sparse).double()
        net.last.weight = nn.Parameter(torch.ones(5, 4, dtype=_F64).tril())  # no longer tied
        with torch.no_grad():
            net.words.weight.copy_(torch.linspace(-1, 1, 20).view(5, 4))
        x = torch.zeros(6, dtype=_F64)
        problem = bilevel.Problem(outer, inner, x, net)
        steps = bilevel.inner.Steps(bilevel.updates.Descent(0.1), D)
        found.append(bilevel.hypergradient(problem, x, net, bilevel.ITD(), steps).value)
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-14)


def test_bfloat16_inside_and_float32_outside() -> None:
    """Autocast in the loss: x, y and the hypergradient stay float32, as in a loop by hand."""
    net = nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))

    def half(x: Tensor, net: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            losses = nn.functional.cross_entropy(net(ROWS.float()), LABELS, reduction="none")
        return (x.exp() * losses.float()).mean()

    def f(x: Tensor, net: nn.Module) -> Tensor:
        return nn.functional.cross_entropy(net(ROWS.float()), LABELS)

    x = torch.linspace(-1, 1, 6)
    start = x.clone().requires_grad_()
    y = {n: p.detach().clone().requires_grad_() for n, p in Bound(net).named_parameters()}
    for _ in range(D):
        value = functional_call(Bound(net), y, (half, start))
        slopes = torch.autograd.grad(value, list(y.values()), create_graph=True)
        y = {n: p - 0.1 * s for (n, p), s in zip(y.items(), slopes, strict=True)}
    exact = torch.autograd.grad(functional_call(Bound(net), y, (f, start)), start)[0]
    problem = bilevel.Problem(f, half, x, net)
    steps = bilevel.inner.Steps(bilevel.updates.Descent(0.1), D)
    found = bilevel.hypergradient(problem, x, net, bilevel.ITD(), steps)
    assert found.value.dtype == found.y["0.weight"].dtype == torch.float32
    # Both round to bfloat16 on the way back, −α r or r: to its precision they are the same.
    fine = float(torch.finfo(torch.bfloat16).eps)
    assert float((found.value - exact).abs().max()) < fine * float(exact.abs().max())
