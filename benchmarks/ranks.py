"""Two processes with one thread each against one process with one and with two threads.

    BILEVEL_DATA=... python benchmarks/ranks.py [-o docs/benchmarks/ranks.md] [--repeats 3]

AID-BiO with 10 gradient steps, 10 CG steps and the cross product: hyper-cleaning of MNIST (dense,
20,000 × 785, ten classes) and 20 Newsgroups (sparse, 101,631 features, twenty classes); and stocBiO
with batches of 500 rows on MNIST. Settings take turns, all in one run; seconds a step are the
median over the repeats, each a mean over some steps. `in collectives` is the leader's share of the
time that it spends in them, waiting included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from bilevel.peers import Group, from_environment

import bilevel
from bilevel.algorithms import AIDBiO, Algorithm, StocBiO
from bilevel.lab.tasks.hyper_cleaning import HyperCleaning
from bilevel.lab.tasks.per_feature import PerFeatureRegularisation
from bilevel.oracles import CountingOracle, View, make

CONFIGURATIONS = {"1 process, 1 thread": (1, 1), "1 process, 2 threads": (1, 2)}
CONFIGURATIONS["2 processes, 1 thread each"] = (2, 1)
CONTESTS = ("mnist", "mnist-batches", "newsgroups")


def contest(name: str) -> tuple[bilevel.Problem, Algorithm, int]:
    """A problem, an algorithm, and the steps that are timed."""
    if name == "newsgroups":
        problem = PerFeatureRegularisation().build(bilevel.datasets.load(name), 0).problem
        settings = {"inner_steps": 10, "inner_lr": 60.0, "cg_steps": 10, "outer_lr": 100.0}
        return problem, AIDBiO(**settings), 3
    task = HyperCleaning(mean=0.1307, std=0.3081)
    problem = task.build(bilevel.datasets.load("mnist"), 0).problem
    if name == "mnist":
        settings = {"inner_steps": 10, "inner_lr": 0.05, "cg_steps": 10, "outer_lr": 100.0}
        return problem, AIDBiO(**settings), 5
    settings = {"inner_steps": 10, "inner_lr": 0.05, "neumann_terms": 10, "neumann_lr": 0.05}
    return problem, StocBiO(**settings, batch=500, outer_lr=100.0), 40


def measure(name: str, threads: int, output: Path) -> None:
    """Time the steps of a contest, in this process of maybe several."""
    torch.set_num_threads(threads)
    with from_environment() as peers:
        problem, algorithm, steps = contest(name)
        oracle = CountingOracle(make(bilevel.shard(problem, peers)))
        state = algorithm.init(oracle, problem.x0, problem.y0)
        state, _ = algorithm.step(View.of(oracle), state)
        before = peers.seconds if isinstance(peers, Group) else 0.0
        start = time.perf_counter()
        for _ in range(steps):
            state, _ = algorithm.step(View.of(oracle, state.step), state)
        seconds = time.perf_counter() - start
        waited = peers.seconds - before if isinstance(peers, Group) else 0.0
        if peers.leads:
            found = {"seconds": seconds / steps, "collectives": waited / seconds}
            output.write_text(json.dumps({**found, "x": float(state.x.norm())}))


def run(name: str, processes: int, threads: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--measure", name, str(threads), str(output)]
        if processes > 1:
            launch = ["-m", "torch.distributed.run", "--standalone"]
            command[1:1] = [*launch, f"--nproc-per-node={processes}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return json.loads(output.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, threads, output = options.measure
        return measure(name, int(threads), Path(output))
    lines = [
        "| contest | | seconds a step | of one thread | in collectives |",
        "|---|---|---|---|---|",
    ]
    for name in CONTESTS:
        found: dict[str, list[dict[str, float]]] = {label: [] for label in CONFIGURATIONS}
        for _ in range(options.repeats):
            for label, (processes, threads) in CONFIGURATIONS.items():
                found[label].append(run(name, processes, threads))
        first = None
        for label, runs in found.items():
            times = sorted(each["seconds"] for each in runs)
            median = statistics.median(times)
            first = first or median
            share = statistics.median(each["collectives"] for each in runs)
            spread = f"{median:.3f} ({times[0]:.3f} to {times[-1]:.3f})"
            lines.append(f"| {name} | {label} | {spread} | {median / first:.2f} | {share:.0%} |")
            print(lines[-1], flush=True)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
