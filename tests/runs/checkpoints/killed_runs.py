"""Kill a run again and again at random moments, until it gets to its end; then compare.

    python killed_runs.py ALGORITHM KILLS FOLDER

The runs are processes forked from this one, which has torch loaded: to kill one costs
milliseconds. Prints how many were killed, and ends with 0 if all bits are those of a run that
nothing disturbed.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import bilevel
from bilevel.algorithms import registry

ROWS, STEPS = 30, 40
ADAM: dict[str, Any] = {"outer": bilevel.updates.Adam(0.1), "outer_lr": None}
SETTINGS: dict[str, dict[str, Any]] = {
    "aid-bio": {"inner_steps": 3, "cg_steps": 3, **ADAM},
    "stocbio": {"inner_steps": 3, "neumann_terms": 3, "batch": 5, **ADAM},
}


class Mean(bilevel.StatefulCallback):
    """The mean of x over all steps: wrong if a step is seen twice, or never."""

    def __init__(self) -> None:
        self.steps, self.sum = 0, torch.zeros(3).double()

    def __call__(self, progress: bilevel.Progress) -> None:
        self.steps, self.sum = self.steps + 1, self.sum + progress.x

    def memory(self) -> dict[str, Any]:
        return {"steps": self.steps, "sum": self.sum}

    def remember(self, memory: dict[str, Any]) -> None:
        self.steps, self.sum = memory["steps"], memory["sum"]


def problem() -> bilevel.Problem:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(ROWS, 3, generator=generator, dtype=torch.float64)
    return bilevel.Problem(
        outer=lambda x, y, batch: (y - batch.data).square().mean() + 0.1 * x.square().sum(),
        inner=lambda x, y, batch: (y - x * batch.data).square().mean() + 0.05 * y.square().sum(),
        x0=torch.ones(3).double(),
        y0=torch.zeros(3).double(),
        outer_data=rows,
        inner_data=rows + 0.5,
    )


def run(name: str, folder: Path | None) -> dict[str, Any]:
    """All that a run gives, as plain data, without the seconds."""
    mean = Mean()
    result = bilevel.minimize(
        problem(),
        registry()[name].make(**SETTINGS[name]),
        steps=STEPS,
        seed=5,
        evaluate_every=7,
        metrics={"size": lambda x, y: float(x.norm())},
        callbacks=[mean],
        checkpoint=folder,
        checkpoint_every=0,
    )
    state = result.state
    return {
        "tensors": [result.x, result.y, *state.points.values(), mean.sum],
        "memory": dict(state.memory),
        "history": [{**record, "seconds": 0} for record in map(dict, result.history)],
        "rest": [result.counts, result.status, result.message, mean.steps],
    }


def same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


def ends_by_itself(name: str, folder: Path, seconds: float) -> bool:
    """Start a run in a process of its own; kill it after so long, unless it has ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            run(name, folder)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    ended, _, _ = select.select([reading], [], [], seconds)  # its end closes the pipe
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(reading)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, "the run failed"
    return True


def main(name: str, least: int, folder: Path) -> None:
    torch.set_num_threads(1)
    unbroken = run(name, None)
    start = time.monotonic()
    run(name, folder)  # to know how long it takes
    usual = time.monotonic() - start
    moments, kills = random.Random(0), 0
    while kills < least:
        shutil.rmtree(folder)
        while not ends_by_itself(name, folder, moments.uniform(0, usual / 3)):
            kills += 1
        if not same(run(name, folder), unbroken):
            sys.exit(f"other bits after {kills} kills")
    print(kills)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
