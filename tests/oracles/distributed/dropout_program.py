"""A run with dropout on a stream, on several processes.

    torchrun --nproc-per-node 2 -m tests.oracles.distributed.dropout_program OUTPUT [STEPS DIE_AT]

With DIE_AT there are checkpoints beside OUTPUT, and rank 1 kills itself after that step; 0: never.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from bilevel.peers import Peers, from_environment
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bilevel

ROWS = torch.linspace(-1, 1, 12, dtype=torch.float64)
STEPS, LR = 3, 0.1


def net() -> nn.Module:
    module = nn.Sequential(
        nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)
    ).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    return module


def inner(x: Tensor, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    rows = batch.data[0]
    return (x.exp() * (net(rows[:, None])[:, 0] - rows.sin()).square()).mean()


def outer(x: Tensor, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    return inner(torch.zeros(1, dtype=torch.float64), net, batch)


def loader(batch: int) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(ROWS), batch_size=batch, shuffle=True)


def run(peers: Peers, steps: int = 1, **more: Any) -> bilevel.Result:
    x0 = torch.zeros(1, dtype=torch.float64)
    problem = bilevel.Problem(outer, inner, x0, net(), outer_data=loader(3), inner_data=loader(3))
    inner_steps = bilevel.inner.Steps(bilevel.updates.Descent(LR), STEPS)
    method = bilevel.algorithms.ITDBiO(inner=inner_steps, outer_lr=1.0)
    return bilevel.minimize(bilevel.shard(problem, peers), method, steps=steps, **more)


def main(output: Path, steps: int = 1, die_at: int | None = None) -> None:
    torch.set_num_threads(1)
    with from_environment(timeout=20) as peers:

        def die(progress: bilevel.Progress) -> None:
            if peers.rank == 1 and progress.record.step == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

        kept = {} if die_at is None else {"checkpoint": output.parent / "kept"}
        more = {**kept, "checkpoint_every": 0.0, "callbacks": [die]} if kept else {}
        state = run(peers, steps, **more).state
        if peers.leads:
            torch.save({"x": state.x, "y": state.y, "buffers": dict(state.buffers)}, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
