"""DARTS on a toy cell: which of five functions makes the data, by differences of gradients.

    python examples/darts.py [plot.png]

The cell mixes candidate operations by softmax(x); y are the weights of a head for each. The data
are made with a sine, so that its share should win (Liu, Simonyan & Yang, 2019). Inputs and scales
were chosen so that it does: on two milder problems it did not, and tanh won one of them. This
shows how the estimate is written, not that such a search finds the right operation.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import bilevel

torch.set_num_threads(1)
torch.manual_seed(0)
OPERATIONS = {
    "sine": lambda h: torch.sin(3 * h), "tanh": torch.tanh, "identity": lambda h: h / 4,
    "square": lambda h: h.square() / 8, "zero": torch.zeros_like,
}  # fmt: skip
X = 8 * torch.rand(400, 1) - 4
t = torch.sin(3 * X) + 0.1 * torch.randn(400, 1)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(1, 1) for _ in OPERATIONS)

    def forward(self, rows: Tensor, shares: Tensor) -> Tensor:
        parts = zip(shares, self.heads, OPERATIONS.values(), strict=True)
        return torch.stack([s * head(operation(rows)) for s, head, operation in parts]).sum(0)


def loss(x: Tensor, cell: nn.Module, batch: bilevel.Batch) -> Tensor:
    rows, targets = batch.data
    return (cell(rows, x.softmax(0)) - targets).square().mean()


path: list[Tensor] = []
result = bilevel.minimize(
    bilevel.Problem(
        loss, loss, 1e-3 * torch.randn(5), Cell(),
        inner_data=(X[:200], t[:200]), outer_data=(X[200:], t[200:]),
    ),
    bilevel.algorithms.Composed(
        inner=bilevel.inner.Steps(bilevel.updates.Momentum(0.05), steps=2, batch=64, keep=True),
        hypergradient=bilevel.hypergradients.FiniteDifferences(
            bilevel.AID(bilevel.linear.Identity(0.05))
        ),
        outer=bilevel.updates.Adam(0.05),
    ),
    steps=200,
    evaluate_every=200,
    callbacks=[lambda progress: path.append(progress.x.softmax(0))],
)  # fmt: skip
shares = dict(zip(OPERATIONS, path[-1].tolist(), strict=True))
print({name: f"{share:.2f}" for name, share in shares.items()})
assert max(shares, key=lambda name: shares[name]) == "sine"
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    plt.plot(torch.stack(path), label=list(OPERATIONS))
    plt.xlabel("outer step"), plt.ylabel("share in the cell"), plt.legend()
    plt.savefig(sys.argv[1])
