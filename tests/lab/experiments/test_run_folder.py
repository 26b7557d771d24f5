"""Run folders: what is in them, and what a crash costs."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bilevel.datasets import load as load_data
from bilevel.durable.store import Store
from bilevel.errors import UserError
from bilevel.lab.experiments.experiment import Budget, parse
from bilevel.lab.experiments.runner import Recorder, run_experiment, run_one, torch_threads
from bilevel.lab.notify import Notify, silent
from bilevel.lab.run_folder import Folder
from bilevel.lab.run_log import RunLog
from bilevel.lab.tasks import Instance
from bilevel.problem.peers import Peers
from bilevel.runs.checkpoints.saved import Saved

from ...oracles.distributed.threads import together
from ...truth import forked
from .small_experiments import tiny, tiny_toml

METRICS = {"step", "seconds", "hypergradient_norm"}
METRICS |= {f"{part}_{what}" for part in ("train", "test") for what in ("loss", "accuracy")}
METRICS |= {"validation_loss", "detection_auc"}
METRICS |= {f"{c}{s}" for c in ("gc_f", "gc_g", "jv", "hv") for s in ("", "_samples")}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the experiments: another number of threads gives other last digits."""
    with torch_threads(1):
        yield


def without_clock(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def small_instance() -> Instance:
    return tiny().task().build(load_data("digits"), seed=0)


class Crash(BaseException):
    pass


def crashing(instance: Instance, after: int) -> Instance:
    """The same problem, in which the program dies at a certain evaluation."""
    calls = iter(range(after))

    def measure(x: Any, y: Any) -> dict[str, float]:
        if next(calls, None) is None:
            raise Crash
        return instance.measure(x, y)

    return Instance(instance.problem, measure)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    return run_experiment(tiny(), folder, "bilevel run tiny.toml")


def test_a_run_folder_has_everything(finished: Folder) -> None:
    folder = finished.path
    text = (folder / "experiment.toml").read_text()
    assert parse(text, "stored") == tiny().resolved()
    about = json.loads((folder / "about.json").read_text())
    assert about["command"] == "bilevel run tiny.toml"
    assert about["threads"] == 1
    assert set(about) >= {"bilevel", "torch", "numpy", "python", "platform", "cores", "started"}
    for label in ("stoc", "hoag"):
        for seed in (0, 1):
            run = folder / "runs" / label / f"seed-{seed}"
            names = sorted(path.name for path in run.iterdir())
            assert names == ["done.json", "final.npz", "metrics.jsonl"]
            assert json.loads((run / "done.json").read_text())["status"] == "step_limit"
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
            assert all(set(line) >= METRICS for line in lines)
            assert lines[0]["hypergradient_norm"] is None
            assert lines[0]["seconds"] == lines[0]["hv"] == 0
            assert lines[-1]["hypergradient_norm"] > 0
            with np.load(run / "final.npz", allow_pickle=False) as final:
                assert (final["x"].shape, final["y"].shape) == ((200,), (65, 10))


def test_the_last_line_is_of_the_final_variables(finished: Folder) -> None:
    run = finished.log("hoag", 0)
    with np.load(run.folder / "final.npz") as final:
        x, y = torch.as_tensor(final["x"]), torch.as_tensor(final["y"])
    measured = small_instance().measure(x, y)
    assert run.lines()[-1].items() >= measured.items()


def test_finished_runs_are_skipped_and_more_seeds_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_experiment(tiny(seeds=[0]), tmp_path, "first")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("seed-0/*")}
    told = []
    run_experiment(tiny(seeds=[0, 1]), tmp_path, "second", lambda *news: told.append(news))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(tmp_path.rglob("seed-1/done.json"))) == 2
    assert told[-1][1:] == (4, 4)
    monkeypatch.setattr("bilevel.lab.experiments.runner.run_one", pytest.fail)
    run_experiment(tiny(seeds=[0, 1]), tmp_path, "third")
    about = Folder(tmp_path).about
    assert about["command"] == "second"  # the third made no run, and is not who made them
    assert about["load_after"] is not None
    assert [record["command"] for record in about["earlier"]] == ["first"]


def test_an_algorithm_that_was_left_out_is_added_later(tmp_path: Path) -> None:
    whole = tiny(seeds=[0])
    left_out = whole.algorithms[-1].label
    run_experiment(whole.with_limits(without=left_out), tmp_path, "first")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("seed-0/done.json")}
    assert len(before) == len(whole.algorithms) - 1
    run_experiment(whole, tmp_path, "second")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert Folder(tmp_path).log(left_out, 0).done
    changed = whole.with_settings(left_out, {"outer_lr": 0.123})
    with pytest.raises(UserError, match="another algorithms"):
        run_experiment(changed, tmp_path, "third")


def test_two_experiments_cannot_share_a_folder(finished: Folder) -> None:
    before = (finished.path / "experiment.toml").read_text()
    with pytest.raises(UserError, match="another budget: choose another folder"):
        run_experiment(tiny(budget={"steps": 5}), finished.path, "again")
    assert (finished.path / "experiment.toml").read_text() == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*file"):
        run_experiment(tiny(), tmp_path / "file" / "run", "command")


@pytest.mark.parametrize("label", ["stoc", "hoag"])
@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_crashed_run_goes_on_as_if_nothing_had_been(
    finished: Folder, tmp_path: Path, label: str, after: int
) -> None:
    algorithm = {c.label: c for c in tiny().algorithms}[label].make()
    log, budget = RunLog(tmp_path), Budget(steps=4)
    with pytest.raises(Crash):
        run_one(crashing(small_instance(), after - 1), algorithm, 0, budget, log)
    assert not log.done
    assert len(log.lines()) == after - 1
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "sec')  # what a kill can leave behind
    assert len(log.lines()) == after - 1
    run_one(small_instance(), algorithm, 0, budget, log)
    unbroken = finished.log(label, 0)
    assert without_clock(log.lines()) == without_clock(unbroken.lines())
    with np.load(tmp_path / "final.npz") as a, np.load(unbroken.folder / "final.npz") as b:
        np.testing.assert_array_equal(a["x"], b["x"])
        np.testing.assert_array_equal(a["y"], b["y"])
    seconds = [line["seconds"] for line in log.lines()]
    assert seconds == sorted(seconds)


def test_a_run_that_diverges_ends_with_its_last_finite_step(tmp_path: Path) -> None:
    algorithm = tiny().algorithms[0].make(inner_lr=1e30, inner_steps=5)
    run_one(small_instance(), algorithm, 0, Budget(steps=50), RunLog(tmp_path))
    done = json.loads((tmp_path / "done.json").read_text())
    assert done["status"] == "diverged"
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # NaN and Infinity are not JSON
    with np.load(tmp_path / "final.npz") as final:
        assert np.isfinite(final["y"]).all()


def test_evaluations_come_at_growing_distances(tmp_path: Path) -> None:
    algorithm = tiny().algorithms[0].make()
    log = RunLog(tmp_path)
    run_one(small_instance(), algorithm, 0, Budget(steps=60), log)
    steps = [line["step"] for line in log.lines()]
    assert steps[:11] == list(range(11))
    assert steps[-1] == 60
    assert len(steps) < 35


def test_a_number_of_evaluations_is_spaced_evenly(tmp_path: Path) -> None:
    algorithm = tiny().algorithms[0].make()
    for evaluations, apart in ((5, 20), (49, 2)):  # 3/5 − 2/5 < 1/5, and 1/49 × 49 < 1
        log, steps = RunLog(tmp_path / str(evaluations)), apart * evaluations
        budget = Budget(steps=steps, evaluations=evaluations)
        run_one(small_instance(), algorithm, 0, budget, log)
        assert [line["step"] for line in log.lines()] == list(range(0, steps + 1, apart))


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [(0.0, 0.19, False), (0.0, 0.21, True), (50.0, 54.9, False), (50.0, 55.1, True)],
)
def test_a_crash_loses_seconds_at_most(last: float, now: float, due: bool, tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    algorithm = tiny().algorithms[0].make()
    recorder = Recorder(small_instance(), algorithm, Budget(seconds=100.0), log)
    recorder._last_seconds = last
    assert recorder._is_due(1, now) is due


def test_a_killed_command_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(tiny_toml(budget={"steps": 100_000}, seeds=[0]))
    command = forked.begin(tmp_path, "-m", "bilevel", "run", "tiny.toml", "-o", "run")
    log = Folder(tmp_path / "run").log("stoc", 0)
    store = Store(log.checkpoints)
    ended = command.send(signal.SIGKILL, lambda: len(store.files()) >= 2)  # the first is step 0
    assert ended.code == -signal.SIGKILL
    left, kept = log.lines(), store.load()
    assert kept is not None
    saved = Saved.of(kept)
    assert saved.past.state.step > 0
    (memory,) = saved.memories
    before = [line for line in left if line["step"] <= saved.past.state.step]
    assert before[-1]["step"] == memory["last step"] > 0
    assert log.begin(memory["last step"]) == before[-1]
    assert log.lines() == before
    assert not log.done


@pytest.mark.parametrize("crash", [3, 7])
def test_two_processes_go_on_with_a_run_that_was_broken_off(
    finished: Folder, tmp_path: Path, crash: int
) -> None:
    experiment = tiny(seeds=[0])
    calls = iter(range(100))

    def tell(*_: object) -> None:
        if next(calls) == crash:
            raise Crash

    def run(peers: Peers, notify: Notify) -> None:
        run_experiment(experiment, tmp_path, "command", notify if peers.leads else silent, peers)

    with pytest.raises((Crash, threading.BrokenBarrierError)):
        together(2, lambda peers: run(peers, tell))
    together(2, lambda peers: run(peers, silent))
    for label in ("stoc", "hoag"):
        ours, alone = (folder.log(label, 0).lines() for folder in (Folder(tmp_path), finished))
        assert [line["step"] for line in ours] == [line["step"] for line in alone]
        assert ours[-1]["validation_loss"] == pytest.approx(alone[-1]["validation_loss"], rel=1e-4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\0\0\0\0\n", "metrics.jsonl, line 1 is not JSON"),
        (b'{"seconds": 1}\n', "a line has the step None"),
        (b'{"step": "a"}\n', "a line has the step 'a'"),
        (b"[1, 2]\n", "line 1 should hold a JSON dict"),
        (b"[" * 100_000 + b"\n", "line 1 is not JSON"),
        (b"\xe9\n", "cannot read"),
    ],
)
def test_a_run_does_not_go_on_from_damaged_metrics(
    tmp_path: Path, line: bytes, message: str
) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(line)
    with pytest.raises(UserError, match=message):
        RunLog(tmp_path).begin(0)


def test_an_experiment_file_in_another_encoding_is_refused(finished: Folder) -> None:
    file = finished.path / "experiment.toml"
    before = file.read_bytes()
    try:
        file.write_bytes(before + b"# caf\xe9\n")
        with pytest.raises(UserError, match="cannot read"):
            run_experiment(tiny(), finished.path, "bilevel run")
    finally:
        file.write_bytes(before)
