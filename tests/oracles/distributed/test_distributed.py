"""Many processes give what one gives, for every algorithm."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from bilevel.peers import Alone, Group

import bilevel
from bilevel.lab.experiments.experiment import load
from bilevel.lab.run_folder import Folder
from bilevel.problem.parts import Part

from ...truth.dense_truth import relative
from ...truth.forked import ROOT, Ended, begin
from ...truth.quadratics import noisy_sum
from .rank_cases import CASES, outcome
from .rank_program import run
from .threads import together

PROGRAM = "tests.oracles.distributed.rank_program"


def ranks(processes: int, *arguments: str) -> list[Ended]:
    """As torchrun starts them, without the seconds that it takes."""
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        port = any_port.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    begun = [begin(ROOT, *arguments, **shared, RANK=str(rank)) for rank in range(processes)]
    return [rank.end() for rank in begun]


def assert_as_on_one_process(name: str, many: dict[str, Any]) -> None:
    one = outcome(CASES[name], Alone())
    assert many["status"] == one["status"]
    # Where steps are tried until Φ falls no more, the last digits decide how often.
    if not name.startswith(("aid-qn", "anchored-aid")):
        assert many["counts"] == one["counts"]
    # A step of AnchoredAID is a whole run on a sample, over which rounding grows: its end is known
    # to fewer digits, and ∇Φ, which is small there, to fewer still.
    anchored = name.startswith("anchored-aid")
    near = 1e-7 if anchored else 1e-10
    for key in ("x", "y") if anchored else ("x", "y", "hypergradient"):
        assert relative(many[key], one[key]) < near
    torch.testing.assert_close(many["values"], one["values"], rtol=near, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_every_run_ends_as_on_one_process(name: str) -> None:
    """Threads stand for three processes."""
    first, *others = together(3, lambda peers: outcome(CASES[name], peers))
    assert_as_on_one_process(name, first)
    for other in others:
        assert all(torch.equal(first[key], other[key]) for key in ("x", "y", "hypergradient"))
        assert (first["values"], first["counts"]) == (other["values"], other["counts"])


@pytest.mark.parametrize("size", [2, 3])
def test_runs_in_real_processes_end_as_on_one(size: int, tmp_path: Path) -> None:
    names = ["aid-bio, rows", "aid-qn, no rows", "stocbio, softmax", "sparse", "tasks, anil, 2"]
    file = tmp_path / "found.pt"
    for ended in ranks(size, "-m", "tests.oracles.distributed.rank_cases", str(file), *names):
        assert ended.code == 0, ended.err[-3000:]
    found = torch.load(file, weights_only=True)
    for name in names:
        assert_as_on_one_process(name, found[name])


def test_a_process_that_dies_ends_the_others_with_a_clear_message(tmp_path: Path) -> None:
    """Without torchrun, which may end the others before they speak."""
    output = tmp_path / "found.pt"
    first, second = ranks(2, "-m", PROGRAM, str(tmp_path), str(output), "5")
    assert second.code == -signal.SIGKILL
    assert first.code == 1
    assert "rank 0 of 2 lost its peers: another rank has died" in first.err
    assert "torchrun --max-restarts starts all of them again, from the last" in first.err
    assert not output.exists()


@pytest.mark.parametrize(
    ("what", "named"),
    [("ridge", "inner.ridge"), ("rows", "inner_data"), ("steps", "steps")],
)
def test_processes_that_disagree_are_both_told_in_what(what: str, named: str) -> None:
    for rank in ranks(2, "-m", "tests.oracles.distributed.differing_ranks", what):
        assert rank.code == 1
        told = rank.err[rank.err.index("the processes do not work on the same run") :]
        assert "rank 1 differs from rank 0 in" in told
        assert named in told
        assert "lost its peers" not in rank.err


def test_a_restart_by_torchrun_goes_on_from_the_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    program = ["--max-restarts=1", "-m", PROGRAM, str(tmp_path), str(tmp_path / "found.pt"), "5"]
    done = subprocess.run(
        [*command, *program],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "died").exists()
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    unbroken = together(2, run)[0]
    assert torch.equal(found["x"], unbroken["x"])
    assert torch.equal(found["y"], unbroken["y"])
    assert found["steps"] == unbroken["steps"] == list(range(1, 13))
    assert found["counts"] == unbroken["counts"]


EXPERIMENT = """
name = "shared"
data = "digits"
seeds = [0, 1]
threads = 1

[problem]
kind = "hyper-cleaning"
corruption = 0.3
train_rows = 301
validation_rows = 100
ridge = 0.01

[budget]
steps = 8

[[algorithms]]
label = "aid"
name = "aid-bio"
settings = {inner_steps = 5, inner_lr = 0.1, cg_steps = 5, outer_lr = 10.0}

[[algorithms]]
label = "stoc"
name = "stocbio"
settings = {inner_steps = 5, inner_lr = 0.1, neumann_lr = 0.1, batch = 20, outer_lr = 10.0}
"""


def test_an_experiment_on_two_processes_writes_the_results_of_one(tmp_path):
    file = tmp_path / "shared.toml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    folders = [tmp_path / "one", tmp_path / "two"]
    command = ("-m", "bilevel", "run", str(file), "-o")
    one = begin(ROOT, *command, str(folders[0])).end()
    assert one.code == 0, one.err
    two = ranks(2, *command, str(folders[1]))
    assert [rank.code for rank in two] == [0, 0], two
    assert [rank.out.count("results: ") for rank in two] == [1, 0]  # only one process speaks
    chosen = load(str(file))
    curves = [Folder(folder).begun(chosen) for folder in folders]
    compared = 0
    for label, seeds in curves[0].items():
        for ours, other in zip(seeds, curves[1][label], strict=True):
            assert ours.columns["step"].tolist() == other.columns["step"].tolist()
            torch.testing.assert_close(
                ours.columns["validation_loss"].tolist(),
                other.columns["validation_loss"].tolist(),
                rtol=1e-4,
                atol=1e-6,
            )  # in float32
            compared += 1
    assert compared == 4


def test_parts_cover_all_rows_once():
    for total in (4, 7, 100):
        for size in (1, 2, 3, 4):
            parts = [Part.of(total, _Rank(rank, size)) for rank in range(size)]
            rows = torch.cat([part.rows for part in parts])
            assert torch.equal(rows, torch.arange(total))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


class _Rank(Alone):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def test_a_process_holds_its_own_rows_and_no_others():
    problem = noisy_sum(rows=41).problem()
    held = bilevel.shard(problem, _Rank(1, 4))
    A = held.inner_data.batch(None).data[0]
    assert len(A) == 10
    assert A.untyped_storage().nbytes() == A.numel() * A.element_size()
    assert torch.equal(A, problem.inner_data.rows(torch.arange(10, 20))[0])
    assert len(held.inner_data) == 41


def test_mistakes_are_named():
    problem = noisy_sum(rows=3).problem()
    with pytest.raises(ValueError, match=r"3 rows, fewer than the 4 processes: start fewer"):
        bilevel.shard(problem, _Rank(0, 4))
    with pytest.raises(ValueError, match=r"there is no process group: call torch\.distributed"):
        bilevel.shard(problem)
    with pytest.raises(ValueError, match="there is no process group"):
        Group()
    with pytest.raises(ValueError, match="sharded already"):
        bilevel.shard(bilevel.shard(problem, _Rank(0, 2)), _Rank(0, 2))
    assert bilevel.shard(problem, Alone()) is problem
