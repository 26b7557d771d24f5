"""Killed, restarted, the same bits.

A run keeps a checkpoint. Its process is killed (SIGKILL: no time to clean up), the same program is
started again, and continues. The result equals that of a run that was never killed, to the last
bit, despite random batches and Adam's memory.

What to change: your own program only needs `checkpoint="folder"`; `checkpoint_every` is 60
seconds by default. A folder of another problem or method is refused, and the difference named.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt
import torch

import bilevel


def run(folder: str | None, die_at: int | None = None) -> bilevel.Result:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 5, generator=generator, dtype=torch.float64)
    labels = (X[:, 0] > 0).long()
    problem = bilevel.softmax_problem(
        (X[:150], labels[:150]), (X[150:], labels[150:]), penalty=bilevel.PerFeature()
    )
    method = bilevel.algorithms.StocBiO(
        inner_steps=5,
        inner_lr=0.3,
        neumann_terms=5,
        neumann_lr=0.3,
        batch=25,
        outer=bilevel.updates.Adam(0.1),
    )

    def die(progress: bilevel.Progress) -> None:
        if progress.record.step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    # One checkpoint a step, so that a run of a second has some.
    return bilevel.minimize(
        problem, method, steps=60, checkpoint=folder, checkpoint_every=0, callbacks=[die]
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:  # the process that will be killed
        run(sys.argv[1], die_at=int(sys.argv[2]))
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run([sys.executable, __file__, folder, "25"], check=False)
        print(f"the first process ended with {signal.Signals(-ended.returncode).name}")
        resumed = run(folder)
    whole = run(None)
    same = torch.equal(resumed.x, whole.x) and torch.equal(resumed.y, whole.y)
    print(f"resumed and never killed: the same bits? {same}")
    assert same
    norms = [record.hypergradient_norm for record in resumed.history]
    plt.plot(range(1, 25), norms[:24], label="before the kill")
    plt.plot(range(25, 61), norms[24:], label="after it, in another process")
    plt.plot(
        range(1, 61), [r.hypergradient_norm for r in whole.history], "k:", label="never killed"
    )
    plt.xlabel("outer step"), plt.ylabel("norm of the hypergradient"), plt.legend()
    plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "checkpoint_and_resume.png")
