"""Seconds of the processor until a method has taken its first stretch, with nothing on disk.

    python benchmarks/first_use.py [METHOD ...]

Each method runs in a process of its own with an empty cache of kernels, and then once more with
what the first has left there: what compilation costs at first use, and what is left of it later.
Imports are not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time


def once(name: str, classes: int) -> float:
    """In this process."""
    import torch

    import bilevel

    torch.set_num_threads(1)
    X = torch.randn(2000, 22, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(2000) % classes
    kind = bilevel.softmax_problem if classes > 2 else bilevel.logistic_problem
    halves = (X[:1000], labels[:1000]), (X[1000:], labels[1000:])
    problem = kind(*halves, penalty=bilevel.PerFeature())
    numbers = {"inner_lr": 0.01, "neumann_lr": 0.01, "outer_lr": 0.01, "batch": 64}
    known = set(bilevel.algorithms.named(name).algorithm.__dataclass_fields__)
    own = {key: value for key, value in numbers.items() if key in known}
    method = bilevel.algorithms.named(name).make(**own)
    begun = time.process_time()
    bilevel.minimize(problem, method, steps=60, evaluate_every=30)
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=["soba", "saba", "ttsa", "stocbio"])
    parser.add_argument("--classes", type=int, default=2)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(once(options.methods[0], options.classes))
        return
    for name in options.methods:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            ask = [sys.executable, __file__, name, "--inside", "--classes", str(options.classes)]
            seconds = [
                float(
                    subprocess.run(
                        ask, env=environment, capture_output=True, text=True, check=True
                    ).stdout
                )
                for _ in range(2)
            ]
        print(
            json.dumps(
                {
                    "method": name,
                    "classes": options.classes,
                    "first": seconds[0],
                    "again": seconds[1],
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
