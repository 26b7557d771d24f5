"""Runs that are killed with SIGKILL, and go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from bilevel.apps.few_shot.checkpoint import load
from bilevel.durable.store import Store
from bilevel.lab.run_folder import Folder

from ...apps.cleaning.dirty_tables import dirty
from ...apps.few_shot.few_shot_pictures import SMALL, put_images
from ...cli.signalled import Commands
from ...lab.experiments.small_experiments import tiny_toml

KILLS = 12  # of each algorithm, at least


@pytest.mark.skipif(os.name != "posix", reason="processes are forked")
@pytest.mark.parametrize("name", ["aid-bio", "stocbio"])
def test_a_run_killed_at_random_moments_ends_with_the_bits_of_one_that_was_not(
    name: str, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("killed_runs.py")
    command = [sys.executable, str(script), name, str(KILLS), str(tmp_path / "run")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= KILLS


@pytest.mark.skipif(os.name != "posix", reason="processes are forked")
def test_killed_commands_go_on_and_find_the_same(tmp_path: Path) -> None:
    case = dirty(rows=20_000)
    case.train.to_csv(tmp_path / "train.csv", index=False)
    case.trusted.to_csv(tmp_path / "trusted.csv", index=False)
    put_images(tmp_path / "data")
    budget = {"steps": 100, "evaluations": 20}
    (tmp_path / "tiny.toml").write_text(tiny_toml(budget=budget, seeds=[0]))
    clean = ("clean", "train.csv", "--label", "label", "--trusted", "trusted.csv")
    often = ("--checkpoint", "kept", "--checkpoint-every", "0")
    train = ("few-shot", "train", *SMALL, "--steps", "40")
    with Commands() as commands:
        for command, extra, reached in (
            ((*clean, "--algorithm", "stocbio", "--output"), often, "kept/step-*2.pt"),
            ((*train, "--output"), (), "few-shot-1/last.pt"),
            (("run", "tiny.toml", "--output"), (), "run-1/runs/stoc/seed-0/checkpoint/step-*5*.pt"),
        ):
            broken, whole = f"{command[0]}-1", f"{command[0]}-2"
            killed = commands.begin(tmp_path, *command, broken, *extra)
            how = killed.send(signal.SIGKILL, partial(found, tmp_path, reached))
            assert how.code == -signal.SIGKILL
            again = commands.begin(tmp_path, *command, broken, *extra)
            unbroken = commands.begin(tmp_path, *command, whole)
            assert [again.end().code, unbroken.end().code] == [0, 0]
    tables = [(tmp_path / f"clean-{i}" / "labels.csv").read_bytes() for i in (1, 2)]
    assert tables[0] == tables[1]
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
