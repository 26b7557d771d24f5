"""Curves in MLflow."""

from __future__ import annotations

import re
import time

from bilevel.runs.trackers.tracker import BROKEN_OFF, Log, Settings, Values, extra


class MLflow(Log):
    """A run in MLflow's store; see it with `mlflow ui --backend-store-uri ADDRESS`.

    The run is found again by its name. If it continues, it writes what is missing; if it starts
    over, after the last of this name has ended or with other settings, it is a new run.

    Args:
        address: of the store, as MLflow has it: "sqlite:///mlflow.db" is a file, "http://..." a
            server.
        run: the run's name.
        experiment: the name of the experiment that the run belongs to.
    """

    def __init__(self, address: str, run: str, experiment: str = "bilevel") -> None:
        self._module = extra("mlflow", "mlflow-skinny")
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
            return  # already written by the run that was killed
        now, metric = time.time_ns() // 10**6, self._module.entities.Metric
        kept = [metric(_key(name), value, now, step) for name, value in values.items()]
        # Synchronous: before the step's checkpoint, so that a kill leaves no gap.
        self._client.log_batch(self._id, metrics=kept, synchronous=True)

    def end(self, status: str, message: str) -> None:
        tags = {"bilevel.status": status, "bilevel.message": message}
        for name, text in tags.items():
            self._client.set_tag(self._id, name, text)
        failed = status in ("diverged", BROKEN_OFF)
        ended = "KILLED" if status == "interrupted" else "FAILED" if failed else "FINISHED"
        self._client.set_terminated(self._id, ended)

    def _earlier(self, place: str, step: int, settings: Settings) -> str | None:
        """The last run of this name, if this one continues it."""
        name = self._run.replace("'", "\\'")
        runs = self._client.search_runs(
            [place],
            f"attributes.run_name = '{name}'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        # Other settings under the same name make another run: curves must not be mixed.
        same = [run for run in runs if run.data.params == {_key(k): v for k, v in settings.items()}]
        over = [run for run in same if run.info.status == "FINISHED"]
        return same[0].info.run_id if same and (step > 1 or not over) else None

    def _last_step(self, run: str) -> int:
        # The norm is in every record; other values may be missing.
        history = self._client.get_metric_history(run, "hypergradient_norm")
        return max((metric.step for metric in history), default=-1)


def _key(name: str) -> str:
    """A name that MLflow allows."""
    return re.sub(r"[^\w\-. /]", "_", name)
