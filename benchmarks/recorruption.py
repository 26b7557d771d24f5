"""What labels that are corrupted again at each visit do by themselves: no bilevel optimisation.

python benchmarks/recorruption.py     # minutes; writes docs/reproductions/results

Plain gradient steps on a softmax model of MNIST, all weights σ(0), λ never moved: small batches,
each row visited every second epoch, against full batches, each row visited in every step. Labels
are corrupted once, or again at each visit, as they are in the public code of Ji, Yang & Liang (see
docs/reproductions/authors-code.md).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from bilevel.datasets import Dataset, corrupt, load
from bilevel.models.softmax.problem import add_bias

FILE = Path(__file__).parent.parent / "docs/reproductions/results/recorruption.json"
ROWS, STEPS, EPOCHS, RATE, RIDGE = (
    2000,
    200,
    10,
    0.1,
    0.001,
)  # their T, α and ridge; a tenth of rows
SEEDS = range(5, 20)  # 0 to 4 were judged before
RATES = (0.1, 0.2, 0.4)
BATCHES = {"small batches": 5, "full batches": ROWS}  # 5 of 2,000 rows are 50 of their 20,000


def wrong_after(visits: float, p: float) -> float:
    """The expected share of wrong labels: each visit moves a share p to one of nine other classes.

    >>> round(wrong_after(1, 0.1), 3), round(wrong_after(200, 0.1), 3)
    (0.1, 0.9)
    """
    return 0.9 * (1 - (1 - p * 10 / 9) ** visits)


@cache
def _data() -> Dataset:
    return load("mnist")


def lowest_losses(p: float, again: bool, seed: int) -> dict[str, dict[str, float]]:
    """By kind of batch: the lowest test loss, and the share of wrong labels at the end."""
    data = _data()
    X, truth = data.train
    rows = add_bias((torch.as_tensor(X[:ROWS]) - 0.1307) / 0.3081)
    test = (
        add_bias((torch.as_tensor(data.test[0]) - 0.1307) / 0.3081),
        torch.as_tensor(data.test[1]),
    )
    found = {}
    for name, size in BATCHES.items():
        rng = np.random.default_rng(seed)
        once, _, _ = corrupt(truth[:ROWS], p, 10, seed)
        labels = (truth[:ROWS] if again else once).copy()
        W, losses = torch.zeros(rows.shape[1], 10), []
        for _ in range(EPOCHS if size < ROWS else 1):  # one is enough: 90 % are wrong at its end
            order = rng.permutation(ROWS // size)
            for step in range(STEPS):
                at = order[step % len(order)] * size + np.arange(size)
                if again:
                    moved = at[rng.random(size) < p]
                    labels[moved] = (labels[moved] + rng.integers(1, 10, len(moved))) % 10
                batch, given = rows[at], torch.as_tensor(labels[at])
                G = batch.T @ (torch.softmax(batch @ W, 1) - torch.eye(10)[given]) / size
                W -= RATE * (0.5 * G + 2 * RIDGE * W)  # σ(0) = 0.5
                if step % 40 == 39:
                    losses.append(float(cross_entropy(test[0] @ W, test[1])))
        share = float((labels != truth[:ROWS]).mean())
        found[name] = {"lowest test loss": min(losses), "wrong labels": share}
    return found


def main() -> None:
    torch.set_num_threads(1)
    runs = [
        {"p": p, "again": again, "seed": seed, **lowest_losses(p, again, seed)}
        for p in RATES
        for again in (False, True)
        for seed in SEEDS
    ]
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
