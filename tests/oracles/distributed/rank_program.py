"""A checkpointed run on several processes, one of which is killed on the way.

    torchrun --nproc-per-node 2 -m tests.oracles.distributed.rank_program FOLDER OUTPUT STEP

Rank 1 kills itself with SIGKILL after STEP, but only once: the mark that it leaves in FOLDER
tells the next start not to.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from bilevel.peers import Peers, from_environment

import bilevel
from bilevel.algorithms import StocBiO

from ...truth.quadratics import noisy_sum

STEPS = 12
ALGORITHM = StocBiO(batch=6, outer_lr=0.05)


def run(peers: Peers, **more: Any) -> dict[str, Any]:
    problem = bilevel.shard(noisy_sum(rows=41).problem(), peers)
    result = bilevel.minimize(problem, ALGORITHM, steps=STEPS, **more)
    steps = [record.step for record in result.history]
    state, counts = result.state, dict(result.counts)
    return {"x": state.x, "y": state.y, "steps": steps, "counts": counts}


def main(folder: Path, output: Path, die_at: int) -> None:
    torch.set_num_threads(1)
    with from_environment(timeout=20) as peers:
        mark = folder / "died"

        def die(progress: bilevel.Progress) -> None:
            if peers.rank == 1 and progress.record.step == die_at and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        found = run(peers, callbacks=[die], checkpoint=folder / "kept", checkpoint_every=0.0)
        if peers.leads:
            torch.save(found, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
