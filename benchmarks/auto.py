"""No number given against the best of a grid, at the same processor time, side by side.

    BILEVEL_DATA=... python benchmarks/auto.py [-o docs/benchmarks/auto.md] [--seconds 20]

For each problem `AIDBiO()` and `StocBiO()` run for so many seconds of one core, evaluation
excluded, and so does each point of a grid around the paper's. The grid's best is the point with the
lowest first measure at its end: chosen in hindsight, which costs a user the whole grid. A point
that diverges is out. The hypergradient's error is relative, against solves to high accuracy.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bilevel.inner import NewtonCG
from bilevel.linear import CG, if_known

import bilevel
from bilevel.algorithms import AIDBiO, Algorithm, StocBiO
from bilevel.lab.tasks.hyper_cleaning import HyperCleaning
from bilevel.lab.tasks.per_feature import PerFeatureRegularisation
from bilevel.oracles import Views

Measure = Callable[[Any, Any], Mapping[str, float]]


@dataclass(frozen=True)
class Contest:
    """A problem, what a user looks at, and grids for the two algorithms."""

    name: str
    problem: bilevel.Problem
    measure: Measure
    shown: tuple[str, ...]
    aid: list[AIDBiO]
    stocbio: list[StocBiO]
    share: float = 1.0  # of the seconds


@dataclass(frozen=True)
class Run:
    label: str
    steps: int
    scores: Mapping[str, float]


def grid(kind: type[Algorithm], **choices: tuple[Any, ...]) -> list[Any]:
    names = list(choices)
    points = itertools.product(*choices.values())
    return [kind(**dict(zip(names, point, strict=True))) for point in points]


def quadratic(kappa: float) -> Contest:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    basis = torch.linalg.qr(normal(20, 20)).Q
    rows = normal(200, 20)
    H = basis @ torch.diag(torch.logspace(0, -torch.tensor(kappa).log10(), 20).double()) @ basis.T
    noise = 0.1 * torch.einsum("ni,nj->nij", rows, rows) / 20
    H = H + noise - noise.mean(0)
    J, c, d = normal(20, 10), normal(200, 20), normal(20)
    problem = bilevel.quadratic_problem(H, J, c, torch.eye(20).double(), d, 0.01)

    def measure(x: Any, y: Any) -> Mapping[str, float]:
        return {"‖∇Φ‖": float(problem.model.hypergradient(x).norm())}

    lrs = {"inner_steps": (10, 100), "inner_lr": (0.1, 1.0)}
    return Contest(
        f"quadratic, κ = {kappa:g}",
        problem,
        measure,
        ("‖∇Φ‖",),
        grid(AIDBiO, **lrs, cg_steps=(10, 30), outer_lr=(1e-4, 1e-3, 1e-2)),
        grid(
            StocBiO,
            **lrs,
            neumann_terms=(6, 24),
            neumann_lr=(0.5,),
            batch=(50,),
            outer_lr=(1e-4, 1e-3, 1e-2),
        ),
        share=0.1,
    )


def cleaning() -> Contest:
    instance = HyperCleaning(mean=0.1307, std=0.3081).build(bilevel.datasets.load("mnist"), 0)
    adam = {"outer": tuple(bilevel.updates.Adam(lr) for lr in (0.1, 1.0, 10.0))}
    return Contest(
        "hyper-cleaning of MNIST, p = 0.4",
        instance.problem,
        instance.measure,
        ("validation_loss", "test_accuracy", "weight_auc"),
        grid(AIDBiO, inner_steps=(10, 50), inner_lr=(0.01, 0.1), cg_steps=(10,), **adam),
        grid(
            StocBiO,
            inner_steps=(1, 10, 50),
            inner_lr=(0.01,),
            neumann_terms=(6, 24),
            neumann_lr=(0.125,),
            batch=(50,),
            **adam,
        ),
    )


def newsgroups() -> Contest:
    data = bilevel.datasets.load("newsgroups")
    instance = PerFeatureRegularisation().build(data, 0)
    return Contest(
        "per-feature penalties of 20 Newsgroups",
        instance.problem,
        instance.measure,
        ("validation_loss", "test_accuracy"),
        grid(
            AIDBiO,
            inner_steps=(10, 50),
            inner_lr=(100.0,),
            cg_steps=(10, 50),
            outer_lr=(100.0, 1000.0),
        ),
        grid(
            StocBiO,
            inner_steps=(10,),
            inner_lr=(100.0,),
            neumann_terms=(10,),
            neumann_lr=(0.5, 30.0),
            batch=(100, 500, 2000),
            outer_lr=(100.0, 1000.0),
        ),
        share=1.5,
    )


def run(contest: Contest, algorithm: Algorithm, seconds: float, label: str) -> Run | None:
    problem, measure = contest.problem, contest.measure
    result = bilevel.minimize(
        problem,
        algorithm,
        steps=10**6,
        seconds=seconds,
        evaluate_every=10**6,
        clock=time.process_time,
    )
    if result.status == "diverged" or result.state.step == 0:
        return None
    return Run(label, result.state.step, measure(result.x, result.y))


def hypergradient_error(contest: Contest, algorithm: Algorithm) -> float:
    """Of the algorithm's hypergradient at its tenth step, relative to the truth there."""
    problem = contest.problem
    before = bilevel.minimize(problem, algorithm, steps=9).state
    state, report = algorithm.step(Views(problem, seed=0).at(9), before)
    x = problem.x_structure.unflatten(before.x)
    inner = NewtonCG(1e-7, 100, 1000, if_known)
    method = bilevel.AID(CG(3000, 1e-6, if_known))
    start = problem.y_structure.unflatten(state.y)
    truth = bilevel.hypergradient(problem, x, start, method, inner).value
    flat = problem.x_structure.flatten(truth)
    return float((report.direction - flat).norm() / flat.norm())


def settings(algorithm: Algorithm) -> str:
    plain = type(algorithm)()
    changed = {
        name: value for name, value in vars(algorithm).items() if value != getattr(plain, name)
    }
    return ", ".join(f"{name}={value}" for name, value in changed.items())


def contestants(contest: Contest, seconds: float) -> Iterator[tuple[str, Run, float]]:
    for kind, points in ((AIDBiO, contest.aid), (StocBiO, contest.stocbio)):
        auto = run(contest, kind(), seconds, f"{kind.__name__}()")
        assert auto is not None, "auto diverged"
        yield auto.label, auto, hypergradient_error(contest, kind())
        tried = [(run(contest, point, seconds, settings(point)), point) for point in points]
        done = [(found, point) for found, point in tried if found is not None]
        if not done:
            continue
        best, point = min(done, key=lambda pair: pair[0].scores[contest.shown[0]])
        lost = len(points) - len(done)
        name = f"best of {len(points)} {kind.__name__} ({best.label}), {lost} diverged"
        yield name, best, hypergradient_error(contest, point)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=("quadratics", "mnist", "newsgroups"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    makers: dict[str, list[Callable[[], Contest]]] = {
        "quadratics": [lambda: quadratic(10.0), lambda: quadratic(1000.0)],
        "mnist": [cleaning],
        "newsgroups": [newsgroups],
    }
    lines: list[str] = []
    for make in itertools.chain(*(makers[k] for k in makers if options.only in (None, k))):
        contest = make()
        seconds = options.seconds * contest.share
        shown = " | ".join(contest.shown)
        lines += ["", f"## {contest.name}, {seconds:g} s of one core a run", ""]
        lines += [f"| | outer steps | {shown} | error of ∇Φ at step 10 |"]
        lines += ["|---|---|" + "---|" * len(contest.shown) + "---|"]
        print("\n".join(lines[-4:]), flush=True)
        for name, found, error in contestants(contest, seconds):
            values = " | ".join(f"{found.scores[key]:.4g}" for key in contest.shown)
            lines.append(f"| {name} | {found.steps} | {values} | {error:.2g} |")
            print(lines[-1], flush=True)
    if options.output:
        options.output.write_text("\n".join(lines).strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
