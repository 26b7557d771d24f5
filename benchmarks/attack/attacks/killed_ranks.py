"""Two processes that share a run: one is killed at any moment, and both begin again."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from functools import cache
from pathlib import Path

from attack.commands import start
from attack.tally import Tally, WrongError, expect

NAME, SHARE = "killed ranks", 3
_RANK = """
import sys, torch, bilevel
from bilevel.problem.peers import from_environment
rows = torch.arange(40.0, dtype=torch.float64).reshape(20, 2) / 40
problem = bilevel.Problem(
    outer=lambda x, y, batch: ((batch.data @ y - 1) ** 2).mean(),
    inner=lambda x, y, batch: ((batch.data @ y - 2) ** 2).mean() + (x.exp() * y**2).sum(),
    x0=torch.zeros(2, dtype=torch.float64), y0=torch.zeros(2, dtype=torch.float64),
    inner_data=rows, outer_data=rows)
method = bilevel.algorithms.StocBiO(
    inner_steps=3, inner_lr=0.1, neumann_lr=0.1, batch=4, outer_lr=0.1)
with from_environment(20) as peers:
    print("ready", file=sys.stderr, flush=True)
    result = bilevel.minimize(bilevel.shard(problem, peers), method, steps=60,
                              checkpoint=sys.argv[1], checkpoint_every=0)
    if peers.leads:
        open(sys.argv[1] + ".txt", "w").write(repr((result.x.tolist(), len(result.history))))
"""


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    for i in range(tries):
        victim, wait = chance.randrange(2), chance.uniform(0, 0.5)
        tally.attempt(f"kill {i}", lambda i=i, v=victim, w=wait: _killed(f"kept-{i}", v, w))


def _killed(place: str, victim: int, wait: float) -> None:
    pair = _pair(place)
    for process in pair:
        assert process.stderr is not None
        process.stderr.readline()  # "ready"
    time.sleep(wait)
    pair[victim].kill()
    for process in pair:
        process.communicate(timeout=120)
    _whole(place)
    expect(Path(f"{place}.txt").read_text() == _reference(), "another end than that of a whole run")


@cache
def _reference() -> str:
    _whole("whole")
    return Path("whole.txt").read_text()


def _whole(place: str) -> None:
    pair = _pair(place)
    said = [process.communicate(timeout=300)[1] for process in pair]
    if any(process.returncode for process in pair):
        raise WrongError(f"the processes could not go on: {said[0][-300:]}")


def _pair(place: str) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    return [start("-c", _RANK, place, more={**group, "RANK": r, "LOCAL_RANK": r}) for r in "01"]
