"""Run an experiment: every algorithm on every seed, into a folder."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bilevel.algorithms import DoubleLoop
from bilevel.experiments.experiment import Budget, Experiment
from bilevel.experiments.folder import Checkpoint, RunFolder, RunLog
from bilevel.loop import Progress, minimize
from bilevel.oracles import Counts
from bilevel.result import HistoryRecord, Result
from bilevel.structure import Variables
from bilevel.tasks.base import Instance, Measure, Task

Notify = Callable[[str, float, int], None]  # what runs, how many runs are done, of how many
NEVER = 10**12  # steps
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_INSTANT = 1e-9  # seconds: for a run that was interrupted at its very end
_GROWTH = 1.1  # from one evaluation to the next, in seconds or steps
_FINEST = 1 / 500  # of the budget: the least pause between two evaluations
_LONGEST = 5.0  # seconds between two evaluations: the most that a crash can lose


def run_experiment(
    experiment: Experiment,
    folder: Path,
    command: str,
    notify: Notify = lambda what, done, total: None,
) -> RunFolder:
    """Run what is not yet done of an experiment.

    An interrupted run goes on from its last evaluation. Algorithms take turns on one seed
    before the next, so that a busy machine is not one algorithm's bad luck.

    Args:
        experiment: what to run.
        folder: where its results go; see `bilevel.experiments.folder`.
        command: what the user typed, for the record.
        notify: told of the progress.
    """
    results = RunFolder(folder)
    with torch_threads(experiment.threads):
        results.open(experiment, command)
        _run_all(experiment, results, notify)
    return results


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads inside; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_all(experiment: Experiment, results: RunFolder, notify: Notify) -> None:
    data = experiment.task().load(experiment.data)
    total, done = len(experiment.seeds) * len(experiment.algorithms), 0
    for seed in experiment.seeds:
        built: dict[Task, Instance] = {}
        for contestant in experiment.algorithms:
            log = results.log(contestant.label, seed)
            tell = functools.partial(
                _tell, notify, f"{experiment.name}: {contestant.label}, seed {seed}", done, total
            )
            if not log.done:
                task = experiment.task(contestant)
                if task not in built:
                    built[task] = task.build(data, seed)
                run_one(
                    built[task],
                    contestant.make(),
                    seed,
                    experiment.budget,
                    log,
                    tell,
                    CLOCKS[experiment.clock],
                )
            tell(1.0)
            done += 1


def run_one(
    instance: Instance,
    algorithm: DoubleLoop,
    seed: int,
    budget: Budget,
    log: RunLog,
    advance: Callable[[float], None] = lambda spent: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Result:
    """Run one algorithm on one seed into its log.

    Args:
        instance: the problem and its measures.
        algorithm: what solves it.
        seed: of the batches.
        budget: when to stop.
        log: where the results go; if it holds an interrupted run, that goes on.
        advance: told which fraction of the budget is spent.
        clock: what tells the seconds.
    """
    start = log.begin()
    measure_after = functools.partial(instance.measure_after, algorithm)
    recorder = Recorder(measure_after, budget, log, start, advance)
    if start.state is None:
        problem = instance.problem
        x0 = problem.x_structure.unflatten(problem.x0)
        recorder.write(0, 0.0, None, Counts(), x0, problem.y_structure.unflatten(problem.y0))
    left = None if budget.seconds is None else max(budget.seconds - start.seconds, _INSTANT)
    result = minimize(
        instance.problem,
        algorithm,
        steps=budget.steps or NEVER,
        seconds=left,
        seed=seed,
        callbacks=[recorder],
        evaluate_every=NEVER,
        state=start.state,
        clock=clock,
    )
    if result.history:
        recorder.record(result.history[-1], result.x, result.y)
    log.finish(result)
    return result


class Recorder:
    """A callback that measures at growing distances, and keeps what a crash must not lose."""

    def __init__(
        self,
        measure_after: Callable[[int], Measure],
        budget: Budget,
        log: RunLog,
        start: Checkpoint,
        advance: Callable[[float], None],
    ) -> None:
        self._measure_after, self._budget, self._log = measure_after, budget, log
        self._start, self._advance = start, advance
        self._last_step = 0 if start.state is None else start.state.step
        self._last_seconds = start.seconds

    def __call__(self, progress: Progress) -> None:
        step, seconds = progress.record.step, self._start.seconds + progress.record.seconds
        if self._is_due(step, seconds):
            counts = self.record(progress.record, progress.x, progress.y)
            self._log.save(Checkpoint(progress.state, seconds, counts))
        self._advance(self._budget.spent(step, seconds))

    def record(self, record: HistoryRecord, x: Variables, y: Variables) -> Counts:
        """Measure after a step, unless that was done; the counts since the very start."""
        earlier = self._start.counts
        counts = Counts(**{key: earlier[key] + record.counts[key] for key in earlier})
        if record.step > self._last_step:
            seconds = self._start.seconds + record.seconds
            self.write(record.step, seconds, record.hypergradient_norm, counts, x, y)
        return counts

    def write(
        self,
        step: int,
        seconds: float,
        hypergradient_norm: float | None,
        counts: Counts,
        x: Variables,
        y: Variables,
    ) -> None:
        """Measure, and write a line."""
        line = {"step": step, "seconds": seconds, "hypergradient_norm": hypergradient_norm}
        line |= {**self._measure_after(step)(x, y), **counts}
        self._log.append(line)
        self._last_step, self._last_seconds = step, seconds

    def _is_due(self, step: int, seconds: float) -> bool:
        waited = seconds - self._last_seconds
        if self._budget.evaluations is not None:
            spent = self._budget.spent(step, seconds) - self._budget.spent(
                self._last_step, self._last_seconds
            )
            return spent >= 1 / self._budget.evaluations
        if self._budget.seconds is None:
            return waited >= _LONGEST or step >= self._last_step * _GROWTH
        pause = max(self._last_seconds * (_GROWTH - 1), self._budget.seconds * _FINEST)
        return waited >= min(pause, _LONGEST)


def _tell(notify: Notify, what: str, done: int, total: int, spent: float) -> None:
    notify(what, done + spent, total)
