"""Processes that work on one run must all mean the same run."""

from __future__ import annotations

import torch

from bilevel.errors import UserError
from bilevel.problem.identity.words import Identity
from bilevel.problem.peers import Peers
from bilevel.runs.checkpoints.identity import differences


def check_agreement(peers: Peers, mine: Identity) -> None:
    """Raise on every process, before any work, if one of them has another problem or settings.

    Raises:
        UserError: it names what differs, and where.
    """
    leader = peers.told(mine)
    here = differences(leader, mine)
    # A number for each name of the leader's, and one for names that only this process has.
    names = list(leader)
    rows = torch.zeros(peers.size, len(names) + 1, dtype=torch.int64)
    changed = {text.split(" was ")[0] for text in here}
    rows[peers.rank] = torch.tensor([*(n in changed for n in names), bool(changed - {*names})])
    found = peers.sum(rows)
    told = [
        f"rank {rank} differs from rank 0 in "
        + ", ".join(n for n, bit in zip([*names, "other parts"], row, strict=True) if bit)
        for rank, row in enumerate(found.tolist())
        if any(row)
    ]
    if told:
        own = f" (here, on rank {peers.rank}: {'; '.join(here)})" if here else ""
        raise UserError(f"the processes do not work on the same run: {'; '.join(told)}{own}")
