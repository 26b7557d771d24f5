"""Damaged checkpoints of runs and their histories, damaged models, and crafted pickles."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import bilevel
from attack.mutation import mutate
from attack.tally import LostError, Tally, expect
from bilevel.apps.few_shot import checkpoint
from bilevel.durable import sealed

NAME, SHARE = "checkpoints", 600
STEPS = 4


class Trap:
    """An object whose pickle makes a folder when it is loaded."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("trapped",)


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    answer = run("good", STEPS).x
    for i in range(tries):
        act = (_damaged_run, _damaged_model, _crafted)[i % 3]
        tally.attempt(f"{act.__name__} {i}", lambda act=act: act(chance, answer))


def _problem(factor: float = 1.0) -> bilevel.Problem:
    return bilevel.Problem(
        outer=lambda x, y: factor * ((y - 1) ** 2).sum(),
        inner=lambda x, y: ((y - x) ** 2).sum(),
        x0=torch.zeros(2),
        y0=torch.zeros(2),
    )


def run(folder: str, steps: int, factor: float = 1.0) -> Any:
    method = bilevel.algorithms.AIDBiO(inner_steps=3, inner_lr=0.2, cg_steps=2, outer_lr=0.2)
    return bilevel.minimize(_problem(factor), method, steps=steps, checkpoint=folder)


def _damaged_run(chance: random.Random, answer: torch.Tensor) -> None:
    """With one of two checkpoints damaged, the run goes on from the other, to the same bits."""
    shutil.rmtree("run", ignore_errors=True)
    run("run", STEPS - 1)
    files = sorted(Path("run").glob("step-*.pt"))
    files.append(Path("run/history.jsonl"))
    for file in files if chance.random() < 0.3 else [chance.choice(files)]:
        file.write_bytes(mutate(file.read_bytes(), chance))
    result = run("run", STEPS)
    if result.state.step != STEPS:
        raise LostError(f"the run ended at step {result.state.step}")
    expect(torch.equal(result.x, answer), "the resumed run has another x")


def _damaged_model(chance: random.Random, answer: torch.Tensor) -> None:
    sealed.write(Path("model.pt"), {"format": "bilevel few-shot checkpoint 1", "x": answer})
    Path("model.pt").write_bytes(mutate(Path("model.pt").read_bytes(), chance))
    checkpoint.load(Path("model.pt"))


def _crafted(chance: random.Random, answer: torch.Tensor) -> None:
    whole = chance.choice(
        (
            pickle.dumps(Trap()),
            pickle.dumps({"format": Trap()}, protocol=chance.randrange(6)),
            _saved({"format": Trap()}),
            mutate(_saved({"format": Trap()}), chance),
        )
    )
    Path("crafted.pt").write_bytes(whole)
    try:
        checkpoint.load(Path("crafted.pt"))
    finally:
        expect(not Path("trapped").exists(), "a file's code was run")


def _saved(content: Any) -> bytes:
    torch.save(content, "saved.pt")
    return Path("saved.pt").read_bytes()
