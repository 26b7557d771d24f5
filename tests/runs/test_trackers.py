"""Trackers, with the real packages: what they write is read back with their own readers."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from bilevel.trackers import Log, MLflow, TensorBoard, Tracker

import bilevel
from bilevel.algorithms import AIDBiO
from bilevel.errors import UserError
from bilevel.runs.result import Status

from ..truth import forked

STEPS, KILLED = 9, 7
ALGORITHM = AIDBiO(inner_steps=20, inner_lr=0.25, cg_steps=5, outer_lr=0.1)
SUICIDE = """
import pathlib, sys
from tests.runs.test_trackers import kill, tracked
tracked(pathlib.Path(sys.argv[1]), kill)
"""
# MLflow's use of SQLAlchemy
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")


def problem() -> bilevel.Problem:
    return bilevel.Problem(
        outer=lambda x, y: ((y - 1) ** 2).sum(),
        inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        x0=torch.zeros(2).double(),
        y0=torch.zeros(2).double(),
    )


def run(folder: Path | None, *callbacks: Any, **changes: Any) -> bilevel.Result:
    usual: dict[str, Any] = {
        "steps": STEPS,
        "metrics": {"size, of x": lambda x, y: float(x.norm())},
        "evaluate_every": 2,
        "checkpoint": folder,
        "checkpoint_every": 0,
    }
    return bilevel.minimize(problem(), ALGORITHM, callbacks=callbacks, **{**usual, **changes})


def logs(folder: Path) -> tuple[TensorBoard, MLflow]:
    return TensorBoard(folder / "board"), MLflow(f"sqlite:///{folder / 'mlflow.db'}", "a run")


def tracked(folder: Path, *more: Any, algorithm: Any = ALGORITHM, **changes: Any) -> bilevel.Result:
    board, store = logs(folder)
    with Tracker(board, algorithm) as one, Tracker(store, algorithm) as two:
        return two.finish(one.finish(run(folder / "kept", one, two, *more, **changes)))


def kill(progress: bilevel.Progress) -> None:
    if progress.record.step == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bilevel.Result]:
    """A run that was killed after step 7 was tracked, but not yet kept; and went on."""
    folder = tmp_path_factory.mktemp("run")
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true"}
    first = forked.begin(forked.ROOT, "-c", SUICIDE, str(folder), **quiet).end()
    assert first.code == -signal.SIGKILL, first.err
    time.sleep(1.1)  # TensorBoard reads files in the order of the seconds in their names
    return folder, tracked(folder)


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def expected(result: bilevel.Result) -> dict[str, list[tuple[int, float]]]:
    history = result.history
    due = [record for record in history if record.outer_value is not None]
    return {
        "hypergradient_norm": [(r.step, r.hypergradient_norm) for r in history],
        "outer_value": [(r.step, r.outer_value or 0.0) for r in due],
        "metrics/size, of x": [(r.step, r.metrics["size, of x"]) for r in due],
        "counts/hv": [(r.step, r.counts.hv) for r in history],
        "counts/gc_g_samples": [(r.step, r.counts.gc_g_samples) for r in history],
    }


def events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def texts(found: Any, name: str) -> list[str]:
    tag = f"{name}/text_summary"
    return [event.tensor_proto.string_val[0].decode() for event in found.Tensors(tag)]


def test_tensorboard_has_every_step_once_after_a_kill(
    resumed: tuple[Path, bilevel.Result],
) -> None:
    folder, result = resumed
    found = events(folder / "board")
    for name, curve in expected(result).items():
        seen = [(event.step, event.value) for event in found.Scalars(name)]
        assert [step for step, _ in seen] == [step for step, _ in curve], name
        assert [v for _, v in seen] == pytest.approx([v for _, v in curve], rel=1e-6)
    assert "| algorithm.inner_steps | 20 |" in texts(found, "settings")[0]
    assert texts(found, "status")[-1].startswith("**step_limit** All 9 steps were taken")


def runs_in(folder: Path) -> tuple[Any, list[Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("bilevel")
    return client, client.search_runs([experiment.experiment_id])


def test_mlflow_has_every_step_once_after_a_kill(resumed: tuple[Path, bilevel.Result]) -> None:
    folder, result = resumed
    client, runs = runs_in(folder)
    assert len(runs) == 1
    for name, curve in expected(result).items():
        history = client.get_metric_history(runs[0].info.run_id, name.replace(",", "_"))
        assert sorted((m.step, m.value) for m in history) == curve, name
    assert runs[0].info.run_name == "a run"
    assert runs[0].data.params["algorithm.inner_steps"] == "20"
    assert runs[0].data.tags["bilevel.status"] == "step_limit"
    assert runs[0].info.status == "FINISHED"


def test_mlflow_goes_on_with_a_longer_run_and_begins_another_otherwise(
    resumed: tuple[Path, bilevel.Result],
) -> None:
    folder, _ = resumed
    tracked(folder, steps=STEPS + 2)
    client, (run,) = runs_in(folder)
    history = client.get_metric_history(run.info.run_id, "hypergradient_norm")
    assert sorted(metric.step for metric in history) == list(range(1, STEPS + 3))
    log = logs(folder)[1]
    log.begin(1, {"other": "settings"})
    log.end("converged", "")
    log.begin(1, {"other": "settings"})  # the last has ended
    log.end("diverged", "")
    statuses = sorted(run.info.status for run in runs_in(folder)[1])
    assert statuses == ["FAILED", "FINISHED", "FINISHED"]


def test_the_folder_of_tensorboard_takes_a_new_run_in_the_place_of_the_old(tmp_path: Path) -> None:
    for size in (3, 5, 2):
        with Tracker(TensorBoard(tmp_path)) as tracker:
            tracker.finish(run(None, tracker, steps=size))
    assert [event.step for event in events(tmp_path).Scalars("hypergradient_norm")] == [1, 2]


class Notes(Log):
    """What a log is told."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.told: list[Any] = []
        self._fails_at = fails_at

    def begin(self, step: int, settings: Any) -> None:
        self.told.append(("begin", step))

    def write(self, step: int, values: Any) -> None:
        if step == self._fails_at:
            raise OSError("the disk is full")
        self.told.append(step)

    def end(self, status: str, message: str) -> None:
        self.told.append(status)


def test_a_log_is_told_of_one_step_in_three_and_of_the_end() -> None:
    log = Notes()
    with Tracker(log, every=3) as tracker:
        tracker.finish(run(None, tracker))
    assert log.told == [("begin", 3), 3, 6, 9, "step_limit"]


def test_a_log_is_told_of_a_run_that_raised_an_error() -> None:
    log = Notes()

    def fail(progress: bilevel.Progress) -> None:
        raise OSError

    with pytest.raises(OSError), Tracker(log) as tracker:
        run(None, tracker, fail)
    assert log.told == [("begin", 1), 1, "broken_off"]


def test_a_log_that_fails_does_not_stop_the_run() -> None:
    log = Notes(fails_at=3)
    with (
        Tracker(log) as tracker,
        pytest.warns(RuntimeWarning, match=r"the disk is full.*continues"),
    ):
        result = tracker.finish(run(None, tracker))
    assert result.status is Status.STEP_LIMIT
    assert log.told == [("begin", 1), 1, 2, "step_limit"]


def test_a_log_takes_values_from_before_the_first_step(
    resumed: tuple[Path, bilevel.Result],
) -> None:
    folder, _ = resumed  # its tables are made, which takes seconds
    before = len(runs_in(folder)[1])
    log = MLflow(f"sqlite:///{folder / 'mlflow.db'}", "stoc/seed-0")
    log.begin(0, {})
    log.write(0, {"loss": 0.5})
    log.end("converged", "")
    runs = runs_in(folder)[1]
    assert len(runs) == before + 1
    assert [run.data.metrics["loss"] for run in runs if run.info.run_name == "stoc/seed-0"] == [0.5]


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("tensorboard", lambda folder: TensorBoard(folder)),
        ("mlflow-skinny", lambda folder: MLflow(f"sqlite:///{folder}/mlflow.db", "a run")),
    ],
)
def test_a_missing_package_is_named_with_the_command(
    package: str, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf'needs {package}: pip install "bilevel\[trackers\]"'):
        make(tmp_path)
