"""What a run owes to a fair comparison: turns, compiled kernels, and where it comes from."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import bilevel
from bilevel.durable.about import about
from bilevel.lab.experiments import runner
from bilevel.lab.experiments.checksum import checksum
from bilevel.lab.experiments.runner import run_experiment
from bilevel.lab.sweeps import sweep as sweeps

from .small_experiments import tiny


def test_methods_take_turns_and_another_one_begins_with_each_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    run_one, warm_up = runner.run_one, runner.warm_up

    def run(instance: Any, algorithm: Any, seed: int, *rest: Any) -> Any:
        events.append(f"{type(algorithm).__name__} {seed}")
        return run_one(instance, algorithm, seed, *rest)

    def warm(problem: Any, algorithm: Any, seed: int) -> None:
        events.append(f"warm {type(algorithm).__name__}")
        warm_up(problem, algorithm, seed)

    monkeypatch.setattr(runner, "run_one", run)
    monkeypatch.setattr(runner, "warm_up", warm)
    run_experiment(tiny(), tmp_path / "out", "bilevel run tiny.toml")
    assert events == [
        "warm StocBiO", "StocBiO 0", "warm HOAG", "HOAG 0", "HOAG 1", "StocBiO 1",
    ]  # fmt: skip


def test_warming_up_changes_no_bit_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for name in ("warm", "cold"):
        if name == "cold":
            monkeypatch.setattr(runner, "warm_up", lambda *_: None)
        run_experiment(tiny(seeds=[0]), tmp_path / name, "")
        file = tmp_path / name / "runs/stoc/seed-0/final.npz"
        ends.append(np.load(file)["x"])
    np.testing.assert_array_equal(*ends)


def test_a_run_says_where_it_comes_from(tmp_path: Path) -> None:
    run_experiment(tiny(seeds=[0]), tmp_path / "out", "bilevel run tiny.toml")
    told = json.loads((tmp_path / "out/about.json").read_text())
    assert told["command"] == "bilevel run tiny.toml"
    assert told["load_before"] is not None
    assert told["load_after"] is not None
    assert len(told["data"]) == 16


def test_the_commit_is_that_of_the_code() -> None:
    place = Path(bilevel.__file__).parent
    asked = subprocess.run(
        ["git", "-C", str(place), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    if asked.returncode:
        assert about("")["commit"] is None
    else:
        assert about("")["commit"] == asked.stdout.strip()
        assert isinstance(about("")["changed"], bool)


def test_a_checksum_sees_values_types_shapes_and_places() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    sparse = scipy.sparse.csr_array(rows)
    other = [rows + 1, rows.astype(np.float32), rows.T, rows.reshape(3, 2), sparse, (rows, rows)]
    assert len({checksum(part) for part in (rows, *other)}) == 1 + len(other)
    assert checksum(sparse) == checksum(scipy.sparse.coo_array(rows))


def test_trials_keep_the_experiments_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = []

    def loss(*arguments: Any) -> float:
        clocks.append(arguments[-1])
        return 1.0

    monkeypatch.setattr(sweeps, "loss_after", loss)
    for clock in ("cpu", "wall"):
        experiment = tiny(sweep={"hoag": {"outer_lr": [1.0]}}, clock=clock)
        sweeps.sweep(experiment, f"sqlite:///{tmp_path / clock}.db")
    assert clocks == [time.process_time, time.perf_counter]
