"""Few-shot learning: a meta-iteration of ours against the one-task-at-a-time loop, in one run.

    python benchmarks/few_shot.py [-o few-shot.md] [--threads 2] [--repeats 3] [--keep-memory]

32 tasks, 5-way 5-shot with 5 query images a class, D = 5 and 20 inner steps of the head, images of
84×84 with 32 filters and of 32×32 with 64. The loop is what users of learn2learn write: for each
task, embed all its images, take D steps of a cloned head with create_graph=True, and call backward
on the query loss. Ours gives the same derivative (ANIL: of the embedding and of the head's start),
which is checked before any time is believed, and AID-BiO's with 10 CG steps beside it. "The
embedding alone" is the loop without heads: the convolutions' forward and backward passes. With
numba installed, ours runs compiled kernels; the time to compile them is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bilevel.few_shot import FourBlocks, LearnedHead, Tasks, ZeroHead, few_shot_problem
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import bilevel
from bilevel.algorithms import MAML, AIDBiO
from bilevel.cli.memory import keep_freed_memory
from bilevel.datasets import Images
from bilevel.oracles import Views

TASKS, WAYS, SHOTS, QUERIES, RATE = 32, 5, 5, 5, 0.1
SIZES = {84: 32, 32: 64}
# That of `bilevel few-shot train`. AID-BiO's own evaluates f once more in its first step.
OUTER: dict[str, Any] = {"outer": bilevel.updates.Adam(0.001)}


def textbook(embedding: FourBlocks) -> nn.Module:
    """The same network in plain torch layers."""
    blocks: list[nn.Module] = []
    for weight, scale in zip(embedding.weights, embedding.scales, strict=True):
        filters, inputs = weight.shape[:2]
        convolution = nn.Conv2d(inputs, filters, 3, padding=1)
        normalisation = nn.BatchNorm2d(filters)
        with torch.no_grad():
            convolution.weight.copy_(weight)
            normalisation.weight.copy_(scale)
        blocks += [convolution, normalisation, nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.Flatten())


def one_task_at_a_time(network: nn.Module, head: nn.Linear, images: Tensor, steps: int) -> None:
    """Gradients into .grad, as a user's loop leaves them for the optimiser."""
    shape = (WAYS, SHOTS, QUERIES)
    support_labels = torch.arange(shape[0]).repeat_interleave(shape[1])
    query_labels = torch.arange(shape[0]).repeat_interleave(shape[2])
    for parameter in (*network.parameters(), *head.parameters()):
        parameter.grad = None
    for task in images:
        features = network(task)
        support, query = features[: WAYS * SHOTS], features[WAYS * SHOTS :]
        weight, bias = head.weight, head.bias
        for _ in range(steps):
            loss = cross_entropy(support @ weight.T + bias, support_labels)
            of_weight, of_bias = torch.autograd.grad(loss, (weight, bias), create_graph=True)
            weight, bias = weight - RATE * of_weight, bias - RATE * of_bias
        (cross_entropy(query @ weight.T + bias, query_labels) / len(images)).backward()


def embedding_alone(network: nn.Module, images: Tensor) -> None:
    for task in images:
        network(task).sum().backward()


@dataclass(frozen=True)
class Setting:
    """Everything that both sides work on."""

    problem: bilevel.Problem  # ANIL's
    ridge: bilevel.Problem  # AID-BiO's
    network: nn.Module
    head: nn.Linear
    images: Tensor

    @staticmethod
    def make(size: int, tasks: int, dtype: torch.dtype) -> Setting:
        rng = np.random.default_rng(0)
        pixels = rng.integers(256, size=(20 * 20, size, size, 3), dtype=np.uint8)
        images = Images(pixels, np.arange(400) // 20, tuple(f"class {i}" for i in range(20)))
        source = Tasks(images, WAYS, SHOTS, QUERIES, dtype=dtype)
        embedding = FourBlocks(3, size, SIZES[size])
        problem = few_shot_problem(source, embedding, LearnedHead(), batch=tasks)
        ridge = few_shot_problem(source, embedding, ZeroHead(0.01), batch=tasks)
        head = nn.Linear(embedding.features, WAYS)
        start = problem.x_structure.unflatten(problem.x0)["head"]
        with torch.no_grad():
            head.weight.copy_(start[:-1].T)
            head.bias.copy_(start[-1])
        network = textbook(embedding)
        # As torch's own loaders lay images out; `Tasks` lays them out channels last.
        rows = source.rows(torch.arange(tasks)).contiguous()
        return Setting(problem, ridge, network.to(dtype), head.to(dtype), rows)

    def loop(self, steps: int) -> None:
        one_task_at_a_time(self.network, self.head, self.images, steps)

    def anil(self, steps: int) -> Tensor:
        return hypergradient(self.problem, MAML(inner_steps=steps, inner_lr=RATE, **OUTER))

    def derivative(self, steps: int) -> list[Tensor]:
        """ANIL's by the weights of the convolutions and by the head."""
        parts = self.problem.x_structure.unflatten(self.anil(steps))
        embedding = parts["embedding"]
        weights = [name for name in embedding if name.startswith("weights.")]
        return [*(embedding[name] for name in weights), parts["head"]]

    def derivative_of_loop(self, steps: int) -> list[Tensor]:
        """The same of the loop."""
        self.loop(steps)
        layers = [layer for layer in self.network if isinstance(layer, nn.Conv2d)]
        head = torch.cat([self.head.weight.grad.T, self.head.bias.grad[None]])
        return [*(layer.weight.grad for layer in layers), head]

    def aid(self, steps: int) -> Tensor:
        settings = {"cg_steps": 10, "warm_start": False, **OUTER}
        return hypergradient(self.ridge, AIDBiO(inner_steps=steps, inner_lr=RATE, **settings))


def hypergradient(problem: bilevel.Problem, algorithm: bilevel.algorithms.Algorithm) -> Tensor:
    view = Views(problem, seed=0).at(0)
    return algorithm.step(view, algorithm.init(view.whole, problem.x0, problem.y0))[1].direction


def difference(size: int, steps: int) -> float:
    """Between the loop's derivative and ours, in double precision on two tasks."""
    setting = Setting.make(size, 2, torch.float64)
    pairs = zip(setting.derivative(steps), setting.derivative_of_loop(steps), strict=True)
    return max(float((ours - theirs).norm() / theirs.norm()) for ours, theirs in pairs)


def contest(size: int, steps: int, repeats: int) -> dict[str, list[float]]:
    """Seconds by contestant; they take turns."""
    Setting.make(size, 1, torch.float32).anil(1)  # compiles, or loads what was compiled before
    setting = Setting.make(size, TASKS, torch.float32)
    runs: dict[str, Callable[[], object]] = {
        "one task at a time (plain torch)": lambda: setting.loop(steps),
        "the embedding alone (plain torch)": lambda: embedding_alone(
            setting.network, setting.images
        ),
        "bilevel, ANIL": lambda: setting.anil(steps),
        "bilevel, AID-BiO": lambda: setting.aid(steps),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--keep-memory", action="store_true", help="keep_freed_memory(), for all contestants"
    )
    options = parser.parse_args()
    if options.keep_memory:
        keep_freed_memory()
    torch.set_num_threads(options.threads)
    lines = [
        "| images | D | contestant | seconds, median (least to most) | ratio to the loop |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES:
        for steps in (5, 20):
            worst = difference(size, steps)
            if worst > 1e-8:
                raise SystemExit(f"the derivatives differ by {worst:.1e}: no time means anything")
            print(f"{size}×{size}, D = {steps}: same derivative to {worst:.0e}", flush=True)
            times = contest(size, steps, options.repeats)
            base = statistics.median(next(iter(times.values())))
            for name, taken in times.items():
                middle = statistics.median(taken)
                spread = f"{middle:.2f} ({min(taken):.2f} to {max(taken):.2f})"
                ratio = f"{middle / base:.2f}"
                lines.append(f"| {size}×{size} | {steps} | {name} | {spread} | {ratio} |")
                print(lines[-1], flush=True)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(
            "# Few-shot learning: seconds per meta-iteration\n\n"
            f"Made by `python benchmarks/few_shot.py --threads {options.threads} --repeats "
            f"{options.repeats}{' --keep-memory' * options.keep_memory}`, all in one run on 2 "
            "shared cores; contestants take turns. "
            f"{TASKS} tasks, 5-way 5-shot, 5 query images a class. `bilevel, ANIL` gives the same "
            "derivative as the loop: in double precision to 1e-8 or better, which is checked.\n\n"
            + "\n".join(lines)
            + "\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
