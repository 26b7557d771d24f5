"""Two processes, one result.

Each of two processes holds half of the rows. They sum gradients and products, and take the same
steps as one process that holds all rows. Here the program starts its own two ranks; usually you
would write only the body of `rank`, and start it with `torchrun --nproc-per-node 2 program.py`.

What to change: `RANKS`, or the machines: with torchrun the ranks may be on several of them. On one
machine threads are as fast; ranks are for rows that do not fit into the memory of one.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile

import matplotlib.pyplot as plt
import torch
import torch.multiprocessing as processes

import bilevel

RANKS = 2


def make_problem() -> bilevel.Problem:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    labels = (X[:, 0] > 0).long()
    noisy = torch.where(torch.arange(300) % 5 == 0, 1 - labels, labels)
    return bilevel.softmax_problem(
        (X[:200], noisy[:200]),
        (X[200:], labels[200:]),
        weights=bilevel.SigmoidWeights(),
        penalty=bilevel.Ridge(0.05),
    )


METHOD = bilevel.algorithms.StocBiO(
    inner_steps=5, inner_lr=0.5, neumann_terms=5, neumann_lr=0.5, batch=20, outer_lr=5.0
)


def rank(number: int, port: int, file: str) -> None:
    os.environ.update(
        RANK=str(number),
        WORLD_SIZE=str(RANKS),
        LOCAL_RANK=str(number),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    with bilevel.peers.from_environment() as peers:
        result = bilevel.minimize(bilevel.shard(make_problem(), peers), METHOD, steps=40)
        if peers.leads:
            torch.save({"x": result.x, "f": [r.outer_value for r in result.history]}, file)


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/result.pt"
        processes.spawn(rank, (port, file), nprocs=RANKS)
        together = torch.load(file)
    alone = bilevel.minimize(make_problem(), METHOD, steps=40)
    difference = float((together["x"] - alone.x).norm() / alone.x.norm())
    print(f"x of {RANKS} processes and x of one differ by {difference:.1e} of its size")
    assert difference < 1e-10
    plt.plot([r.outer_value for r in alone.history], label="one process", linewidth=5, alpha=0.4)
    plt.plot(together["f"], "--", label=f"{RANKS} processes")
    plt.xlabel("outer step"), plt.ylabel("f(x, y)"), plt.legend()
    plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "two_ranks.png")
