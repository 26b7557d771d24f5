"""A synthetic stand-in for covtype, like it in all that decides how hard it is.

581,012 rows of 10 numeric columns, 4 and 40 columns of which one is 1, and 7 classes of covtype's
shares. Classes are regions of a few hidden quantities ("height", "slope", ...), which the numeric
columns mix, bend and measure with noise, and on which the place and the soil depend: linear models
err on about 28 % of the rows, as on covtype, and rare soils have columns of rare, far values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SHARES = (0.365, 0.488, 0.062, 0.005, 0.016, 0.030, 0.035)
_HIDDEN, _NUMERIC, _PLACES, _SOILS = 5, 10, 4, 40
_LUMPS = 4  # regions that make up a class
_ROUNDS = 60  # to fit the shares


class Forest(NamedTuple):
    """Standardised rows and labels: to train on, to validate, and to test."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def forest(seed: int = 2442, rows: int = 581_012, blur: float = 0.6) -> Forest:
    """The rows, split as covtype is.

    Args:
        seed: another one is another forest.
        rows: in all.
        blur: of the classes' borders.
    """
    draw, laws = (torch.Generator().manual_seed(k) for k in (seed, 1_000_003 + seed))

    def law(*shape: int) -> Tensor:
        """Numbers that do not depend on how many rows are drawn."""
        return torch.randn(*shape, generator=laws)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    def gumbel(like: Tensor) -> Tensor:
        return -torch.rand(like.shape, generator=draw).clamp_min(1e-9).log().neg().log()

    hidden = normal(rows, _HIDDEN)
    # The class: the nearest of some lumps; height, the first quantity, decides most.
    centres = law(7 * _LUMPS, _HIDDEN) * torch.tensor([1.6, 0.8, 0.7, 0.6, 0.5])
    centres[:, 0] = torch.linspace(-2.2, 2.2, 7).repeat_interleave(_LUMPS) + 0.5 * centres[:, 0]
    scale = 1.5
    near = -scale * torch.cdist(hidden, centres).square()
    logits = torch.logsumexp(near.reshape(rows, 7, _LUMPS), 2)[:, torch.randperm(7, generator=laws)]
    noisy = logits + blur * gumbel(logits)
    labels = (noisy + _levels(noisy[:: max(1, rows // 50_000)])).argmax(1)
    # The columns: mixtures of what is hidden, some bent; and places and soils that depend on it.
    mixed = hidden @ (law(_HIDDEN, _NUMERIC) / _HIDDEN**0.5) + 0.4 * normal(rows, _NUMERIC)
    mixed[:, 0] = hidden[:, 0] + 0.15 * normal(rows)
    mixed[:, 1] = (2 * mixed[:, 1]).sin()  # as of an angle
    mixed[:, 3:6] = mixed[:, 3:6].exp()  # as distances
    mixed[:, 6:8] = mixed[:, 6:8].square()
    columns = [mixed]
    for count, clear, uneven in ((_PLACES, 1.2, 0.7), (_SOILS, 0.9, 1.8)):
        kinds = clear * hidden @ law(_HIDDEN, count) + uneven * law(count)
        chosen = (kinds + gumbel(kinds)).argmax(1)
        columns.append(torch.nn.functional.one_hot(chosen, count).float())
    X = torch.cat(columns, 1)
    order = torch.randperm(rows, generator=draw)
    test, validation = rows // 5, (rows - rows // 5) // 5
    parts = order[test + validation :], order[test : test + validation], order[:test]
    mean, deviation = X[parts[0]].double().mean(0), X[parts[0]].double().std(0, correction=0)
    deviation[deviation == 0] = 1
    X = ((X - mean) / deviation).float()
    return Forest(*((X[part], labels[part]) for part in parts))


def _levels(noisy: Tensor) -> Tensor:
    """What to add to each class so that the shares come out."""
    wanted, found = torch.tensor(SHARES), torch.zeros(7)
    for _ in range(_ROUNDS):
        had = torch.bincount((noisy + found).argmax(1), minlength=7) / len(noisy)
        found += 0.7 * (wanted / had.clamp_min(1e-4)).log()
    return found
