"""Processes that share a run: one is given another seed, another loss or other steps, or dies."""

from __future__ import annotations

import random
import socket

from attack.commands import start
from attack.tally import Tally, WrongError
from bilevel.errors import UserError

NAME, SHARE = "ranks", 6
_RANK = """
import sys, torch, bilevel
from bilevel.problem.peers import from_environment
kind = sys.argv[1]
with from_environment(20) as peers:
    odd = peers.rank == 1
    rows = torch.arange(40.0, dtype=torch.float64).reshape(20, 2) / 40
    rows = rows + 1 if odd and kind == "rows" else rows
    if odd and kind == "dies":
        import os; os._exit(9)
    problem = bilevel.Problem(
        outer=lambda x, y, batch: ((batch.data @ y - 1) ** 2).mean(),
        inner=lambda x, y, batch: ((batch.data @ y - 2) ** 2).mean() + (x.exp() * y**2).sum(),
        x0=torch.zeros(2, dtype=torch.float64), y0=torch.zeros(2, dtype=torch.float64),
        inner_data=rows, outer_data=rows)
    method = bilevel.algorithms.AIDBiO(inner_steps=3, inner_lr=0.1, cg_steps=2, outer_lr=0.1)
    seed, steps = int(odd and kind == "seed"), 3 + (odd and kind == "steps")
    bilevel.minimize(bilevel.shard(problem, peers), method, steps=steps, seed=seed)
"""


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    for i in range(tries):
        kind = ("same", "seed", "steps", "rows", "dies")[i % 5]
        tally.attempt(f"{kind} {i}", lambda kind=kind: _pair(kind))


def _pair(kind: str) -> None:
    """Equal processes succeed; what differs is refused by both, and nobody waits for ever."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    pair = [start("-c", _RANK, kind, more={**group, "RANK": r, "LOCAL_RANK": r}) for r in "01"]
    said = [process.communicate(timeout=120)[1] for process in pair]
    fine = [process.returncode == 0 for process in pair]
    if kind == "same" and not all(fine):
        raise WrongError(f"equal processes failed: {said[0][-300:]}")
    if kind != "same" and fine[0]:
        raise WrongError(f"a process with another {kind} went unnoticed")
    if kind != "same":
        raise UserError(said[0][-300:])
