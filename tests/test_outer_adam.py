"""The outer Adam against torch's own."""

from __future__ import annotations

import pytest
import torch

import bilevel
from bilevel.algorithms import StocBiO

from .small_problems import softmax


@pytest.mark.parametrize("outer_lr", [0.3, bilevel.schedules.decaying(0.3, 0.5)])
def test_outer_adam_gives_the_same_bits_as_torchs(outer_lr: float) -> None:
    results = [
        bilevel.minimize(
            softmax(),
            StocBiO(batch=2, outer_lr=outer_lr, outer_optimizer=optimizer),
            steps=12,
            seed=0,
        )
        for optimizer in ("adam", torch.optim.Adam)
    ]
    assert torch.equal(results[0].state.x, results[1].state.x)
    assert not torch.equal(results[0].state.x, torch.zeros_like(results[0].state.x))
