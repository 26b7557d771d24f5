"""Runs that are killed with SIGKILL, and go on."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest
import torch

from bilevel.apps.few_shot.checkpoint import load
from bilevel.durable.store import Store
from bilevel.lab.run_folder import Folder

from ...apps.few_shot.few_shot_pictures import put_images, small
from ...cli.signalled import begin
from ...lab.experiments.small_experiments import tiny_toml
from ...truth import forked

KILLS = 12  # of each algorithm, at least


@pytest.mark.skipif(os.name != "posix", reason="processes are forked")
@pytest.mark.parametrize("name", ["aid-bio", "stocbio"])
def test_a_run_killed_at_random_moments_ends_with_the_bits_of_one_that_was_not(
    name: str, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("killed_runs.py")
    ended = forked.begin(tmp_path, str(script), name, str(KILLS), str(tmp_path / "run")).end()
    assert ended.code == 0, ended.err
    assert int(ended.out) >= KILLS


@pytest.mark.skipif(os.name != "posix", reason="processes are forked")
def test_killed_commands_go_on_and_find_the_same(tmp_path: Path) -> None:
    put_images(tmp_path / "data")
    budget = {"steps": 100, "evaluations": 20}
    (tmp_path / "tiny.toml").write_text(tiny_toml(budget=budget, seeds=[0]))
    train = ("few-shot", "train", *small("--steps", "40", "--output"))
    for command, reached in (
        (train, "few-shot-1/last.pt"),
        (("run", "tiny.toml", "--output"), "run-1/runs/stoc/seed-0/checkpoint/step-*.pt"),
    ):
        broken, whole = f"{command[0]}-1", f"{command[0]}-2"
        killed = begin(tmp_path, *command, broken)
        how = killed.send(signal.SIGKILL, partial(found, tmp_path, reached))
        assert how.code == -signal.SIGKILL
        again = begin(tmp_path, *command, broken)
        unbroken = begin(tmp_path, *command, whole)
        assert [again.end().code, unbroken.end().code] == [0, 0]
    kept = [Store(tmp_path / f"few-shot-{i}/checkpoint").load() for i in (1, 2)]
    states = [saved["past"]["state"]["points"] for saved in kept if saved is not None]
    assert all(torch.equal(states[0][name], states[1][name]) for name in ("x", "y"))
    models = [load(tmp_path / f"few-shot-{i}/last.pt").x for i in (1, 2)]
    assert torch.equal(*models)
    runs = [Folder(tmp_path / f"run-{i}").log("stoc", 0) for i in (1, 2)]
    lines = [[{**line, "seconds": 0} for line in run.lines()] for run in runs]
    assert lines[0] == lines[1]
    assert len(lines[0]) > 15
    ends = [(run.folder / "final.npz").read_bytes() for run in runs]
    assert ends[0] == ends[1]


def found(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))
