"""Run an experiment: every algorithm on every seed, into a folder."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bilevel.algorithms import Algorithm
from bilevel.durable import interruption
from bilevel.errors import UserError
from bilevel.lab.experiments.checksum import checksum
from bilevel.lab.experiments.experiment import Budget, Contestant, Experiment
from bilevel.lab.notify import Notify, silent
from bilevel.lab.run_folder import Folder
from bilevel.lab.run_log import Beginning, RunLog
from bilevel.lab.tasks.base import Instance, Measure, Task
from bilevel.oracles import Counts
from bilevel.problem.peers import Alone, Peers
from bilevel.problem.problem import Problem
from bilevel.problem.sharding import shard
from bilevel.problem.structure import Variables
from bilevel.runs.checkpoints.identity import Identity, differences, identity_of_run
from bilevel.runs.minimize import Progress, minimize
from bilevel.runs.progress import Callback
from bilevel.runs.result import Past, Result, Status

NEVER = 10**12  # steps
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_GROWTH = 1.1  # from one evaluation to the next, in seconds or steps
_FINEST = 1 / 500  # of the budget: the least pause between two evaluations
_LONGEST = 5.0  # seconds between two evaluations, unless their number is given
_SAVE_SECONDS = 60.0  # the most that a crash can lose


def run_experiment(
    experiment: Experiment,
    folder: Path,
    command: str,
    notify: Notify = silent,
    peers: Peers | None = None,
) -> Folder:
    """Run what is not yet done of an experiment.

    An interrupted run goes on from its last checkpoint. Algorithms take turns on one seed
    before the next, and another one begins each time, so that a busy machine is not one
    algorithm's bad luck. What is compiled at first use is compiled before the clock starts.

    Args:
        experiment: what to run.
        folder: where its results go; see `bilevel.lab.run_folder`.
        command: what the user typed, for the record.
        notify: told of the progress.
        peers: the processes that share each run's rows, of which this one leads; the others call
            `follow_experiment`. Alone by default.

    Raises:
        Interrupted: a signal ended it inside `bilevel.interruption.graceful()`.
        UserError: the folder cannot be written to, is in use, or holds another experiment.
    """
    results = Folder(folder)
    with results.locked(), torch_threads(experiment.threads):
        data = experiment.task().load(experiment.data)
        recorded = results.open(experiment, command, checksum(data))
        _run_all(experiment, data, results, notify, peers or Alone())
        if recorded:
            results.close()
    return results


def follow_experiment(experiment: Experiment, peers: Peers) -> None:
    """Do this process's share of each run that the leader of `run_experiment` begins."""
    data, warm = experiment.task().load(experiment.data), set[str]()
    with torch_threads(experiment.threads):
        for seed, turns in _turns(experiment):
            for contestant in turns:
                if not peers.told(None):
                    continue
                interruption.current().check()
                problem = shard(experiment.task(contestant).build(data, seed).problem, peers)
                if contestant.label not in warm:
                    warm_up(problem, contestant.make(), seed)
                    warm.add(contestant.label)
                result = minimize_within(experiment.budget, problem, contestant.make(), seed)
                if result.status is Status.INTERRUPTED:
                    interruption.current().check()
                    return


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Inside, torch uses this many threads; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _turns(experiment: Experiment) -> Iterator[tuple[int, list[Contestant]]]:
    """Each seed with the algorithms in their turn: who begins changes from seed to seed."""
    every = experiment.algorithms
    for number, seed in enumerate(experiment.seeds):
        first = number % len(every)
        yield seed, [*every[first:], *every[:first]]


def warm_up(problem: Problem, algorithm: Algorithm, seed: int) -> None:
    """Two steps that are thrown away: what is compiled at first use is compiled here."""
    minimize_within(Budget(steps=2), problem, algorithm, seed, [lambda progress: None])


def _run_all(
    experiment: Experiment, data: Any, results: Folder, notify: Notify, peers: Peers
) -> None:
    total, done = len(experiment.seeds) * len(experiment.algorithms), 0
    warm = set[str]()
    for seed, turns in _turns(experiment):
        built: dict[Task, Instance] = {}
        for contestant in turns:
            log = results.log(contestant.label, seed)
            name = f"{experiment.name}: {contestant.label}, seed {seed}"

            def tell(spent: float, name: str = name, now: int = done) -> None:
                notify(name, now + spent, total)

            if peers.told(not log.done):
                task = experiment.task(contestant)
                interruption.current().check()
                if task not in built:
                    whole = task.build(data, seed)
                    built[task] = replace(whole, problem=shard(whole.problem, peers))
                clock, budget = CLOCKS[experiment.clock], experiment.budget
                if contestant.label not in warm:
                    warm_up(built[task].problem, contestant.make(), seed)
                    warm.add(contestant.label)
                result = run_one(built[task], contestant.make(), seed, budget, log, tell, clock)
                if result.status is Status.INTERRUPTED:
                    interruption.current().check()
            tell(1.0)
            done += 1


def run_one(
    instance: Instance,
    algorithm: Algorithm,
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
    problem = instance.problem
    identity = identity_of_run(problem, algorithm, {"seed": seed})
    if changed := differences(start.identity or identity, identity):
        raise UserError(
            f"{log.folder} holds the checkpoint of another run: {'; '.join(changed)}. Choose "
            "another folder, or delete it."
        )
    measure_after = functools.partial(instance.measure_after, algorithm)
    recorder = Recorder(measure_after, budget, log, start, advance, identity)
    if start.last is None:
        x0 = problem.x_structure.unflatten(problem.x0)
        recorder.write(0, 0.0, None, Counts(), x0, problem.y_structure.unflatten(problem.y0))
    result = minimize_within(
        budget, problem, algorithm, seed, [recorder], after=start.past, clock=clock
    )
    if result.status is Status.INTERRUPTED:
        log.save(replace(result.past, history=()), identity)
        return result
    recorder.finish(result)
    log.finish(result)
    return result


def minimize_within(
    budget: Budget,
    problem: Problem,
    algorithm: Algorithm,
    seed: int,
    callbacks: Iterable[Callback] = (),
    **more: Any,
) -> Result:
    """`minimize` until a budget is spent; only the callbacks evaluate anything."""
    more |= {"seed": seed, "callbacks": callbacks, "evaluate_every": NEVER}
    steps, seconds = budget.steps or NEVER, budget.seconds
    return minimize(problem, algorithm, steps=steps, seconds=seconds, **more)


class Recorder:
    """A callback that measures at growing distances, and keeps what a crash must not lose."""

    def __init__(
        self,
        measure_after: Callable[[int], Measure],
        budget: Budget,
        log: RunLog,
        start: Beginning,
        advance: Callable[[float], None],
        identity: Identity | None = None,
    ) -> None:
        self._measure_after, self._budget, self._log = measure_after, budget, log
        self._advance, self._identity = advance, identity or {}
        self._last_step = 0 if start.last is None else start.last["step"]
        self._last_seconds = 0.0 if start.last is None else start.last["seconds"]
        self._saved = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        record = progress.record
        is_due = self._is_due(record.step, record.seconds)
        if is_due:
            size = record.hypergradient_norm
            self.write(record.step, record.seconds, size, record.counts, progress.x, progress.y)
        if is_due or time.monotonic() - self._saved > _SAVE_SECONDS:
            self._log.save(Past(progress.state, record.seconds, record.counts), self._identity)
            self._saved = time.monotonic()
        self._advance(self._budget.spent(record.step, record.seconds))

    def finish(self, result: Result) -> None:
        """Measure where the run has ended, unless that was done."""
        past = result.past
        if past.state.step > self._last_step and past.history:
            last = past.history[-1]  # whose time it is: that of a step that was broken off is lost
            size = last.hypergradient_norm
            self.write(past.state.step, last.seconds, size, past.counts, result.x, result.y)

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
