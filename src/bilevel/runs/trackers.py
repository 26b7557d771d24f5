"""Curves of a run in TensorBoard or MLflow, while it goes on.

Nothing is tracked unless it is asked for. Both need a package of their own:
`pip install "bilevel[trackers]"`.
"""

from __future__ import annotations

import importlib
import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.arguments import positive_integer
from bilevel.errors import UserError
from bilevel.runs.checkpoints.identity import identity_of_settings
from bilevel.runs.progress import Progress
from bilevel.runs.result import Result

Values = Mapping[str, float]
Settings = Mapping[str, str]
_BROKEN_OFF = "broken_off"  # the status of a run that raised an error


class Log(ABC):
    """Where curves go. A run that goes on after a kill goes on in the same log."""

    @abstractmethod
    def begin(self, step: int, settings: Settings) -> None:
        """Be ready for the values of this step and those after it."""

    @abstractmethod
    def write(self, step: int, values: Values) -> None:
        """Write the values of a step, each under its name."""

    @abstractmethod
    def end(self, status: str, message: str) -> None:
        """Write how the run ended, and let go of all that is open."""


class NoLog(Log):
    """Nothing is written."""

    def begin(self, step: int, settings: Settings) -> None:
        pass

    def write(self, step: int, values: Values) -> None:
        pass

    def end(self, status: str, message: str) -> None:
        pass


class Tracker:
    """A callback that writes each step of a run into a log, under the step's own number.

    The log gets the outer value and the metrics where they were evaluated, the hypergradient's
    norm, the seconds and the counts; the algorithm's settings; and the status at the end. If the
    log fails, the run goes on without it, with a warning.

    Args:
        log: a `TensorBoard` or an `MLflow`.
        algorithm: whose settings to write down.
        every: write every so-maniest step only.

    Example:
        >>> import tempfile, torch, bilevel
        >>> from bilevel.trackers import TensorBoard, Tracker
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> algorithm = bilevel.algorithms.AIDBiO()
        >>> with Tracker(TensorBoard(tempfile.mkdtemp()), algorithm) as tracker:
        ...     result = tracker.finish(
        ...         bilevel.minimize(problem, algorithm, steps=3, callbacks=[tracker]))
    """

    def __init__(self, log: Log, algorithm: DoubleLoop | None = None, every: int = 1) -> None:
        self._log, self._every = log, positive_integer("every", every)
        self._settings = {} if algorithm is None else identity_of_settings("algorithm", algorithm)
        self._has_begun = self._has_failed = False

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._has_begun:  # and `finish` was not called
            self._end(_BROKEN_OFF, "" if error is None else repr(error))

    def __call__(self, progress: Progress) -> None:
        record = progress.record
        if record.step % self._every:
            return
        values = {"hypergradient_norm": record.hypergradient_norm, "seconds": record.seconds}
        if record.outer_value is not None:
            values["outer_value"] = record.outer_value
        values |= {f"metrics/{name}": value for name, value in record.metrics.items()}
        values |= {f"counts/{name}": count for name, count in dict(record.counts).items()}
        self.write(record.step, values)

    def write(self, step: int, values: Values) -> None:
        """Write values that are known by other means than a `Progress`."""
        if self._has_failed:
            return
        try:
            if not self._has_begun:
                self._log.begin(step, self._settings)
                self._has_begun = True
            self._log.write(step, values)
        except Exception as error:
            self._fail(error)

    def finish(self, result: Result) -> Result:
        """Write how a run ended; gives the result back."""
        if not self._has_begun and not self._has_failed:
            self.write(result.state.step, {})
        self._end(str(result.status), result.message)
        return result

    def _end(self, status: str, message: str) -> None:
        try:
            if self._has_begun:
                self._log.end(status, message)
        except Exception as error:
            self._fail(error)
        self._has_begun = False

    def _fail(self, error: Exception) -> None:
        if isinstance(error, UserError):
            raise error
        self._has_failed = True
        warnings.warn(
            f"the tracker failed ({type(error).__name__}: {error}): the run goes on without it",
            RuntimeWarning,
            stacklevel=3,
        )


class TensorBoard(Log):
    """Event files in a folder; see them with `tensorboard --logdir FOLDER`.

    A run that goes on from step k takes the place of what the folder holds from k on: what came
    after the last checkpoint is not shown twice.

    Args:
        folder: one for each run.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._module = _extra("torch.utils.tensorboard", "tensorboard")

    def begin(self, step: int, settings: Settings) -> None:
        # Its queue is written by a thread, which dies without a word if the folder is no folder.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = self._module.SummaryWriter(str(self._folder), purge_step=step)
        rows = "".join(f"| {name} | {value} |\n" for name, value in settings.items())
        self._text("settings", f"| setting | value |\n|---|---|\n{rows}", step)
        self._last = step

    def write(self, step: int, values: Values) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # before the step's checkpoint: a kill must leave no gap
        self._last = step

    def end(self, status: str, message: str) -> None:
        self._text("status", f"**{status}** {message}", self._last)
        self._writer.close()

    def _text(self, name: str, text: str, step: int) -> None:
        self._writer.add_text(name, text, step)


class MLflow(Log):
    """A run in MLflow's store; see it with `mlflow ui --backend-store-uri ADDRESS`.

    The run is found again by its name. One that goes on writes what is not there yet; one that
    begins anew, after the last of this name has ended or with other settings, is another.

    Args:
        address: of the store, as MLflow has it: "sqlite:///mlflow.db" is a file, "http://..." a
            server.
        run: the run's name.
        experiment: the name of the experiment that the run belongs to.
    """

    def __init__(self, address: str, run: str, experiment: str = "bilevel") -> None:
        self._module = _extra("mlflow", "mlflow-skinny")
        self._client = self._module.MlflowClient(address)
        self._run, self._experiment = run, experiment

    def begin(self, step: int, settings: Settings) -> None:
        found = self._client.get_experiment_by_name(self._experiment)
        place = found.experiment_id if found else self._client.create_experiment(self._experiment)
        earlier = self._earlier(place, step, settings)
        if earlier is None:
            earlier = self._client.create_run(place, run_name=self._run).info.run_id
            kept = [self._module.entities.Param(_key(k), v) for k, v in settings.items()]
            self._client.log_batch(earlier, params=kept)
        self._client.update_run(earlier, status="RUNNING")
        self._id, self._last = earlier, self._last_step(earlier)

    def write(self, step: int, values: Values) -> None:
        if step <= self._last:
            return  # the run that was killed has written it
        now, metric = time.time_ns() // 10**6, self._module.entities.Metric
        kept = [metric(_key(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=kept, synchronous=True)

    def end(self, status: str, message: str) -> None:
        tags = {"bilevel.status": status, "bilevel.message": message}
        for name, text in tags.items():
            self._client.set_tag(self._id, name, text)
        failed = status in ("diverged", _BROKEN_OFF)
        ended = "KILLED" if status == "interrupted" else "FAILED" if failed else "FINISHED"
        self._client.set_terminated(self._id, ended)

    def _earlier(self, place: str, step: int, settings: Settings) -> str | None:
        """The last run of this name, if this one goes on with it."""
        name = self._run.replace("'", "\\'")
        runs = self._client.search_runs(
            [place],
            f"attributes.run_name = '{name}'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        same = [run for run in runs if run.data.params == {_key(k): v for k, v in settings.items()}]
        over = [run for run in same if run.info.status == "FINISHED"]
        return same[0].info.run_id if same and (step > 1 or not over) else None

    def _last_step(self, run: str) -> int:
        history = self._client.get_metric_history(run, "hypergradient_norm")
        return max((metric.step for metric in history), default=-1)


def tracking(address: str | None) -> Callable[[str, DoubleLoop], Tracker]:
    """What makes the tracker of each run of a command, by the run's name; None tracks nothing."""

    def track(run: str, algorithm: DoubleLoop) -> Tracker:
        return Tracker(NoLog() if address is None else log_of(address, run), algorithm)

    return track


def log_of(address: str, run: str) -> Log:
    """The log that a command was given as "tensorboard:FOLDER" or "mlflow:FOLDER", for one run.

    TensorBoard has a folder for each run; MLflow an SQLite file for all, or any address with
    "://" that it knows.
    """
    kind, _, place = address.partition(":")
    if kind == "tensorboard" and place:
        return TensorBoard(Path(place) / run)
    if kind == "mlflow" and place:
        return MLflow(place if "://" in place else _file_store(Path(place)), run)
    raise UserError(f"a tracker is tensorboard:FOLDER or mlflow:FOLDER, not {address!r}")


def _file_store(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error}): choose another folder") from error
    return f"sqlite:///{folder / 'mlflow.db'}"


def _extra(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f'this tracker needs {package}: pip install "bilevel[trackers]"') from error


def _key(name: str) -> str:
    """A name that MLflow allows."""
    return re.sub(r"[^\w\-. /]", "_", name)
