"""Every algorithm on three kinds of problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from bilevel.algorithms import Algorithm, registry
from bilevel.algorithms.registry import Entry
from bilevel.apps.few_shot import Tasks, few_shot_problem
from bilevel.datasets import Images
from bilevel.errors import UserError
from bilevel.models.softmax.form import PerFeature
from bilevel.models.softmax.problem import softmax_problem
from bilevel.problem.problem import Problem
from bilevel.runs.minimize import minimize
from bilevel.runs.progress import Callback
from bilevel.runs.result import Status
from soak.growth import Growth, growth

# Where a demo has such a setting: steps that cost little.
_CHEAP = {
    "inner_steps": 1,
    "cg_steps": 1,
    "neumann_terms": 1,
    "decrease": "quadratic",
    "outer_lr": 1e-3,
}


def smooth() -> Problem:
    """Losses without data, and 2,000 numbers in y."""
    scale = torch.linspace(0.5, 1.5, 2000).double()
    return Problem(
        outer=lambda x, y: (y - 1).square().mean() + 0.01 * x.square().sum(),
        inner=lambda x, y: (scale * (y - x.sum()).square()).sum() / 2 + y.cosh().sum() / 100,
        x0=torch.zeros(5).double(),
        y0=torch.zeros(2000).double(),
    )


def rows() -> Problem:
    """Softmax regression on rows, of which stochastic methods draw batches."""
    random = torch.Generator().manual_seed(0)
    X = torch.randn(600, 100, generator=random, dtype=torch.float64)
    labels = torch.randint(5, (600,), generator=random)
    train, validation = (X[:400], labels[:400]), (X[400:], labels[400:])
    return softmax_problem(train, validation, classes=5, penalty=PerFeature())


def tasks() -> Problem:
    """Few-shot tasks that are drawn anew at each step, and shared by all of its parts."""
    pixels = np.random.default_rng(0).integers(256, size=(40, 8, 8, 1), dtype=np.uint8)
    images = Images(pixels, np.repeat(np.arange(4), 10), ("a", "b", "c", "d"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        embedding = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh()).double()
    drawn = Tasks(images, ways=3, shots=2, queries=2, dtype=torch.float64)
    return few_shot_problem(drawn, embedding, batch=2)


@dataclass(frozen=True)
class Case:
    """A problem, and what it asks of an algorithm's settings."""

    problem: Callable[[], Problem]
    settings: dict[str, Any]
    is_kept: bool = False

    def make(self, entry: Entry) -> Algorithm:
        wanted, known = {**_CHEAP, **self.settings}, {f.name for f in fields(entry.algorithm)}
        named = known & {*entry.demo, "outer_lr"}
        return entry.make(**{k: v for k, v in wanted.items() if k in named})

    def run(self, algorithm: Algorithm, steps: int, *callbacks: Callback) -> Growth:
        folder = TemporaryDirectory() if self.is_kept else nullcontext()
        with folder as checkpoint:
            return growth(self.problem(), algorithm, steps, callbacks, checkpoint)


CASES = {
    "losses without data": Case(smooth, {}),
    "rows, with checkpoints": Case(rows, {"inner_lr": 0.1}, is_kept=True),
    "few-shot tasks": Case(tasks, {"batch": None, "inner_lr": 0.1}),
}


@dataclass(frozen=True)
class Finding:
    """One algorithm on one problem: what grew, or why it was not run."""

    case: str
    algorithm: str
    growth: Growth | None = None
    refusal: str = ""

    @property
    def verdict(self) -> str:
        if self.growth is None:
            return f"not run: {self.refusal.partition(':')[0]}"
        if self.growth.status is not Status.STEP_LIMIT:
            return f"ended early: {self.growth.status}"
        leaks = self.growth.leaks()
        return f"GROWS: {', '.join(leaks)}" if leaks else "flat"

    @property
    def is_bad(self) -> bool:
        return self.growth is not None and self.verdict != "flat"


def soak(steps: int, names: Iterable[str] | None = None) -> Iterator[Finding]:
    """Run every algorithm on every kind of problem, one after the other.

    Args:
        steps: outer steps of each run.
        names: of algorithms; all of the registry if None.
    """
    chosen = registry()
    for name in names or chosen:
        if name not in chosen:
            raise UserError(f"there is no algorithm {name!r}; there are {', '.join(chosen)}")
        for kind, case in CASES.items():
            algorithm = case.make(chosen[name])
            try:
                minimize(case.problem(), algorithm, steps=1)
            except ValueError as error:  # single samples of shared tasks, for one
                yield Finding(kind, name, refusal=str(error))
                continue
            yield Finding(kind, name, case.run(algorithm, steps))
