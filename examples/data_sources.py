"""Data-source weights: a character-level transformer finds which of its sources are corrupted.

    python examples/data_sources.py [plot.png]

Eight sources of text, in four of which the letters are shuffled. x holds the logits of their
weights in the training loss, y is the transformer, f its loss on a little clean text. Solved by
SAMA, with Adam for y (Choe et al., 2023), and by F2SA (Pan et al., 2025).
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import bilevel

torch.set_num_threads(1)
torch.manual_seed(0)
SOURCES, LENGTH, WIDTH, LETTERS = 8, 12, 16, "abcdefghij "
SENTENCE = "a cab hid a bad cafe face each jade bead "


def rows(count: int, corrupted: bool) -> Tensor:
    codes = torch.tensor([LETTERS.index(c) for c in SENTENCE * 2])
    starts = torch.randint(0, len(SENTENCE), (count,))
    text = torch.stack([codes[s : s + LENGTH + 1] for s in starts])
    return text[:, torch.randperm(LENGTH + 1)] if corrupted else text


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(11, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        self.last = nn.Linear(WIDTH, 11)

    def forward(self, text: Tensor) -> Tensor:
        """The loss of each row: every letter from those before it."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.letters(text[:, :-1]) + self.places(torch.arange(LENGTH))
        logits = self.last(self.block(hidden, src_mask=mask, is_causal=True))
        return nn.functional.cross_entropy(logits.mT, text[:, 1:], reduction="none").mean(1)


text = torch.cat([rows(40, corrupted=source >= SOURCES // 2) for source in range(SOURCES)])
source = torch.arange(SOURCES).repeat_interleave(40)
problem = bilevel.Problem(
    outer=lambda x, net, batch: net(batch.data).mean(),
    inner=lambda x, net, batch: (SOURCES * x.softmax(0)[batch.data[1]] * net(batch.data[0])).mean(),
    x0=torch.zeros(SOURCES),
    y0=Model(),
    inner_data=(text, source),
    outer_data=rows(40, corrupted=False),
)
steps = bilevel.inner.Steps(bilevel.updates.Adam(0.01), steps=1, batch=32, keep=True)
METHODS = {
    "SAMA": bilevel.algorithms.Composed(
        inner=steps, hypergradient=bilevel.hypergradients.SAMA(), outer=bilevel.updates.Adam(0.05)
    ),
    "F2SA": bilevel.algorithms.F2SA(
        multiplier=10.0, inner_lr=0.2, inner_steps=1, batch=32, outer=bilevel.updates.Adam(0.05)
    ),
}
curves: dict[str, list[float]] = {name: [] for name in METHODS}
for name, curve in curves.items():
    bilevel.minimize(
        problem, METHODS[name], steps=100, evaluate_every=1000,
        callbacks=[lambda p: curve.append(float(p.x.softmax(0)[SOURCES // 2 :].sum()))],  # noqa: B023
    )  # fmt: skip
    print(f"{name}: weight on the corrupted half 0.50 at first, {curve[-1]:.2f} at the end")
    assert curve[-1] < 0.3
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    for name, curve in curves.items():
        plt.plot(curve, label=name)
    plt.xlabel("outer step"), plt.ylabel("weight on corrupted sources"), plt.legend()
    plt.savefig(sys.argv[1])
