"""A run on two processes, of which the second is given something else.

RANK=0 WORLD_SIZE=2 ... python -m tests.oracles.distributed.differing_ranks WHAT
"""

from __future__ import annotations

import sys

import torch
from bilevel.peers import from_environment

import bilevel
from bilevel.algorithms import AIDBiO


def main(what: str) -> None:
    torch.set_num_threads(1)
    with from_environment(timeout=60) as peers:
        odd = peers.rank == 1
        rows = torch.arange(40.0, dtype=torch.float64).reshape(20, 2) / 40
        rows[3, 1] += 1e-12 * (odd and what == "rows")
        ridge = 0.5 if odd and what == "ridge" else 0.1
        problem = bilevel.Problem(
            outer=lambda x, y, batch: ((batch.data @ y - 1) ** 2).mean(),
            inner=lambda x, y, batch: (
                ((batch.data @ y - 2) ** 2).mean() + ridge * (x.exp() * y**2).sum()
            ),
            x0=torch.zeros(2, dtype=torch.float64),
            y0=torch.zeros(2, dtype=torch.float64),
            inner_data=rows,
            outer_data=rows,
        )
        bilevel.minimize(
            bilevel.shard(problem, peers),
            AIDBiO(inner_steps=3, inner_lr=0.1, cg_steps=2, outer_lr=0.1),
            steps=4 if odd and what == "steps" else 3,
        )


if __name__ == "__main__":
    main(sys.argv[1])
