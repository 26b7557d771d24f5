"""Ordinary networks of many kinds, and the truth about each method by a loop over plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader, Dataset

import bilevel
from bilevel.problem.draws import key
from bilevel.problem.loaders import as_data

_F64 = torch.float64
ROWS = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=_F64)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
X0 = torch.linspace(-1, 0, 6, dtype=_F64)
D = 3
Move = Callable[[int, Tensor, Tensor, dict[str, Any]], Tensor]


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cells = kind(2, 2, num_layers=2, dropout=0.3, batch_first=True)
        self.head = nn.Linear(2, 3)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.cells(rows.view(-1, 4, 2))[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(2, 4), nn.Linear(4, 3)
        self.layer = nn.TransformerEncoderLayer(4, 2, 3, dropout=0.2, batch_first=True)

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
        tokens = (10 * rows[:, :3].abs()).long() % 5
        return self.last(self.words(tokens).mean(1).tanh())


class Adapted(nn.Module):
    """A layer that is not trained, with one of low rank beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(8, 5), nn.Linear(5, 3)
        self.lora_a, self.lora_b = nn.Linear(8, 2, bias=False), nn.Linear(2, 5, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        low = self.lora_b(nn.functional.dropout(self.lora_a(rows), 0.2))
        return self.head((self.base(rows) + low).tanh())


class Spectrum(nn.Module):
    """Complex numbers inside; the parameters are their parts."""

    def __init__(self) -> None:
        super().__init__()
        self.filter, self.head = nn.Parameter(torch.randn(5, 2)), nn.Linear(8, 3)
        self.register_buffer("phase", torch.randn(5, dtype=torch.complex128))

    def forward(self, rows: Tensor) -> Tensor:
        passed = torch.fft.rfft(rows) * torch.view_as_complex(self.filter) * self.phase
        return self.head(torch.fft.irfft(passed, n=8).tanh())


def _images() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 4, 2),
        nn.BatchNorm2d(4),
        nn.Dropout2d(0.3),
        nn.ELU(inplace=True),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


def _dense(how: Any = lambda layer: layer) -> nn.Module:
    return nn.Sequential(how(nn.Linear(8, 5)), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 3))


def _frozen() -> nn.Module:
    net = _dense()
    net.get_submodule("0").requires_grad_(False)
    return net


class TrueWeightNorm(nn.Module):
    """As torch's, in operations whose second derivatives are right."""

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return g * v / v.square().sum(1, keepdim=True).sqrt()

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return weight.norm(dim=1, keepdim=True), weight


_ways = nn.utils.parametrizations
KINDS: dict[str, Callable[[], nn.Module]] = {
    "dropout": _dense,
    "batch norm": _images,
    "attention": Attention,
    "gru": lambda: Recurrent(nn.GRU),
    "lstm": lambda: Recurrent(nn.LSTM),
    "lora": Adapted,
    "tied embedding": TiedWords,
    "frozen": _frozen,
    "weight norm": lambda: _dense(_ways.weight_norm),
    "spectral norm": lambda: _dense(_ways.spectral_norm),
    "orthogonal": lambda: _dense(_ways.orthogonal),
    "complex inside": Spectrum,
}


def true(kind: str) -> nn.Module:
    net = made(kind)
    if kind == "weight norm":
        layer = net.get_submodule("0")
        nn.utils.parametrize.remove_parametrizations(layer, "weight")
        nn.utils.parametrize.register_parametrization(layer, "weight", TrueWeightNorm())
        net.load_state_dict(made(kind).state_dict())
    return net


def made(kind: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return KINDS[kind]().double()


def variables(kind: str) -> Any:
    """As y0."""
    where = (lambda name: "lora" in name) if kind == "lora" else None
    return bilevel.parameters(made(kind), where)


def inner(x: Tensor, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    losses = nn.functional.cross_entropy(net(batch.data[0]), batch.data[1], reduction="none")
    noise = 0.3 * torch.randn(len(losses), dtype=losses.dtype)  # weights that a loss draws itself
    ridge = sum(p.square().sum() for p in net.parameters())
    # Small beside the ridge, so that the Hessian is positive definite for every kind.
    return 0.2 * ((x[batch.index] + noise).exp() * losses).mean() + ridge


def outer(x: Tensor, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    return nn.functional.cross_entropy(net(batch.data[0]), batch.data[1]) + 0.1 * x.square().sum()


class Augmented(Dataset[Any]):
    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return ROWS[row] + 0.1 * torch.randn(8, dtype=_F64), LABELS[row]


def loader(workers: int) -> DataLoader[Any]:
    return DataLoader(Augmented(), batch_size=3, shuffle=True, num_workers=workers)


def problem(kind: str, workers: int | None) -> bilevel.Problem:
    """On tensors, or on augmented rows from a loader."""
    data = (ROWS, LABELS) if workers is None else loader(workers)
    return bilevel.Problem(
        outer, inner, X0, variables(kind), inner_data=data, outer_data=(ROWS, LABELS)
    )


class _Bound(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, loss: Any, x: Tensor, batch: Any) -> Tensor:
        return loss(x, self.net, batch)


class Unrolled:
    """Each method's hypergradient from y0 on, by autograd on named tensors with the same draws."""

    def __init__(self, kind: str, streamed: bool) -> None:
        given = variables(kind)
        self._bound = _Bound(true(kind))
        named = {n: p.detach().clone() for n, p in self._bound.named_parameters()}
        self.y = {f"net.{n}": named.pop(f"net.{n}").requires_grad_() for n in given.chosen}
        self.x, self._fixed = X0.clone().requires_grad_(), named
        self.buffers = {n: b.clone() for n, b in self._bound.named_buffers()}
        self._stream = as_data("inner_data", loader(0)) if streamed else None
        self._calls = {"inner": 0, "outer": 0}

    def draw(self, name: str) -> Callable[[dict[str, Tensor]], Tensor]:
        """The next call of a loss, as a function of y that can be asked again."""
        t, before = self._calls[name], self.buffers
        self._calls[name] = t + 1
        batch = bilevel.Batch((ROWS, LABELS), torch.arange(6))
        if name == "inner" and self._stream is not None:
            batch = self._stream.at(t, 0)

        def called(y: dict[str, Tensor]) -> Tensor:
            state = {**y, **self._fixed, **{n: b.clone() for n, b in before.items()}}
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(key(0, 0, name, t))
                loss = inner if name == "inner" else outer
                value = functional_call(self._bound, state, (loss, self.x, batch))
            if name == "inner":
                self.buffers = {n: state[n].detach() for n in before}
            return value

        return called

    def slopes(self, value: Tensor, again: bool = False) -> list[Tensor]:
        return list(torch.autograd.grad(value, list(self.y.values()), create_graph=again))

    def itd(self, move: Move) -> Tensor:
        memories: dict[str, dict[str, Any]] = {n: {} for n in self.y}
        for t in range(D):
            self._move(t, self.slopes(self.draw("inner")(self.y), again=True), move, memories)
        return torch.autograd.grad(self.draw("outer")(self.y), self.x)[0]

    def aid(self) -> Tensor:
        f_x, f_y = self._outer(self.y)
        slope = _flat(self.slopes(self.draw("inner")(self.y), again=True))
        points = [*self.y.values(), self.x]
        rows = [
            _flat(torch.autograd.grad(s, points, retain_graph=True, materialize_grads=True))
            for s in slope
        ]
        H, J = torch.stack(rows).split([len(slope), len(X0)], 1)
        torch.testing.assert_close(H, H.T, rtol=1e-10, atol=1e-12)  # else autograd itself is wrong
        assert float(torch.linalg.eigvalsh(H)[0]) > 0
        return f_x - J.T @ torch.linalg.solve(H, _flat(f_y))

    def value_function(self, lam: float) -> Tensor:
        start = self.y
        y = self._descended(self.draw("inner")(start))
        p = self._descended(self.draw("inner")(start) + self.draw("outer")(start) / lam)
        f_x, _ = self._outer(p)
        g = self.draw("inner")  # the same draw for both
        return f_x + torch.autograd.grad(lam * (g(p) - g(y)), self.x)[0]

    def last_step(self, move: Move, after: bool) -> Tensor:
        """Through the last step alone; with its cross product before it, or after it."""
        memories: dict[str, dict[str, Any]] = {n: {} for n in self.y}
        for t in range(D):
            before, remembered = self.y, {n: dict(m) for n, m in memories.items()}
            g = self.draw("inner")
            slopes = self.slopes(g(before))
            self._move(t, slopes, move, memories)
            self.y = {n: p.detach().requires_grad_() for n, p in self.y.items()}
        f_x, f_y = self._outer(self.y)
        slopes = [s.requires_grad_() for s in slopes]
        moved = [
            move(D - 1, p.detach(), s, remembered[n])
            for (n, p), s in zip(before.items(), slopes, strict=True)
        ]
        u = torch.autograd.grad(moved, slopes, f_y)
        at = self.y if after else before
        of_y = torch.autograd.grad(g(at), list(at.values()), create_graph=True)
        return f_x + torch.autograd.grad(of_y, self.x, u)[0]

    def _move(
        self, t: int, slopes: list[Tensor], move: Move, memories: dict[str, dict[str, Any]]
    ) -> None:
        pairs = zip(self.y.items(), slopes, strict=True)
        self.y = {n: move(t, p, s, memories[n]) for (n, p), s in pairs}

    def _descended(self, value: Tensor) -> dict[str, Tensor]:
        pairs = zip(self.y.items(), self.slopes(value), strict=True)
        return {n: (p - 0.1 * s).detach().requires_grad_() for (n, p), s in pairs}

    def _outer(self, y: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
        f_x, *f_y = torch.autograd.grad(self.draw("outer")(y), [self.x, *y.values()])
        return f_x, f_y


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
