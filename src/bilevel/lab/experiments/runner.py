"""Run an experiment: every algorithm on every seed, into a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bilevel.algorithms import Algorithm
from bilevel.durable import interruption
from bilevel.lab.experiments.checksum import checksum
from bilevel.lab.experiments.experiment import Budget, Contestant, Experiment
from bilevel.lab.notify import Notify, silent
from bilevel.lab.run_folder import Folder
from bilevel.lab.run_log import RunLog
from bilevel.lab.tasks.base import Instance, Task
from bilevel.oracles import Counts
from bilevel.problem.peers import Alone, Peers
from bilevel.problem.problem import Problem
from bilevel.problem.sharding import shard
from bilevel.problem.structure import Variables
from bilevel.runs.minimize import Progress, minimize
from bilevel.runs.progress import Callback, StatefulCallback
from bilevel.runs.result import Result, Status

NEVER = 10**12  # steps
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_GROWTH = 1.1  # from one evaluation to the next, in seconds or steps
_FINEST = 1 / 500  # of the budget: the least pause between two evaluations
_LONGEST = 5.0  # seconds between two evaluations, unless their number is given
_SAVE_SECONDS = 2.0  # about as much as a crash can lose


def run_experiment(
    experiment: Experiment,
    folder: Path,
    command: str,
    notify: Notify = silent,
    peers: Peers | None = None,
) -> Folder:
    """Run what is not yet done of an experiment.

    An interrupted run continues from its last checkpoint. All algorithms run on one seed before
    the next, in an order that rotates from seed to seed, so that a busy machine does not put one
    algorithm at a disadvantage. Kernels are compiled before the clock starts.

    Args:
        experiment: what to run.
        folder: where its results go; see `bilevel.lab.run_folder`.
        command: what the user typed, for the record.
        notify: called with the progress.
        peers: the processes that share the rows of each run, all of which call this; the first one
            writes. By default there is one process.

    Raises:
        Interrupted: a signal ended it inside `bilevel.interruption.graceful()`.
        UserError: the folder cannot be written to, is in use, or holds another experiment.
    """
    results, peers = Folder(folder), peers or Alone()
    data = experiment.task().load(experiment.data)
    recording = results.recording(experiment, command, checksum(data))
    with torch_threads(experiment.threads), recording if peers.leads else nullcontext():
        _run_all(experiment, data, results, notify, peers)
    return results


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
    done, warm = 0, set[str]()
    for seed, turns in _turns(experiment):
        built: dict[Task, Instance] = {}
        for contestant in turns:
            log = results.log(contestant.label, seed)
            name = f"{experiment.name}: {contestant.label}, seed {seed}"

            def tell(spent: float, name: str = name, now: int = done) -> None:
                notify(name, now + spent, experiment.runs)

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
                    return  # a signal to another process ended it
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
        log: where the results go; an interrupted run in it is continued.
        advance: called with the fraction of the budget that is spent.
        clock: gives the time in seconds.
    """
    recorder = Recorder(instance, algorithm, budget, log, advance)
    result = minimize_within(
        budget,
        instance.problem,
        algorithm,
        seed,
        [recorder],
        clock=clock,
        checkpoint=log.checkpoints,
        checkpoint_every=_SAVE_SECONDS,
    )
    if instance.problem.peers.leads and result.status is not Status.INTERRUPTED:
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


class Recorder(StatefulCallback):
    """Measures at growing intervals and writes to a log, if this process is the first.

    It remembers how far it got: lines written after a checkpoint are measured again on resuming.
    """

    def __init__(
        self,
        instance: Instance,
        algorithm: Algorithm,
        budget: Budget,
        log: RunLog,
        advance: Callable[[float], None] = lambda spent: None,
    ) -> None:
        self._instance, self._algorithm, self._budget = instance, algorithm, budget
        self._log, self._advance = log, advance
        self._last_step, self._last_seconds = -1, 0.0

    def memory(self) -> dict[str, Any]:
        return {"last step": self._last_step}

    def remember(self, memory: dict[str, Any]) -> None:
        problem = self._instance.problem
        if not problem.peers.leads:
            return
        if last := self._log.begin(memory["last step"]):
            self._last_step, self._last_seconds = last["step"], last["seconds"]
        else:
            x0 = problem.x_structure.unflatten(problem.x0)
            self.write(0, 0.0, None, Counts(), x0, problem.y_structure.unflatten(problem.y0))

    def __call__(self, progress: Progress) -> None:
        record = progress.record
        if not self._instance.problem.peers.leads:
            return
        if self._is_due(record.step, record.seconds):
            size = record.hypergradient_norm
            self.write(record.step, record.seconds, size, record.counts, progress.x, progress.y)
        self._advance(self._budget.spent(record.step, record.seconds))

    def finish(self, result: Result) -> None:
        """Measure where the run has ended, unless that was done."""
        past = result.past
        if past.state.step > self._last_step and past.history:
            last = past.history[-1]  # for its time: that of an abandoned step is not recorded
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
        measure = self._instance.measure_after(self._algorithm, step)
        line |= {**measure(x, y), **counts}
        self._log.append(line)
        self._last_step, self._last_seconds = step, seconds

    def _is_due(self, step: int, seconds: float) -> bool:
        waited = seconds - self._last_seconds
        if self._budget.evaluations is not None:
            return self._passed(step, seconds) > self._passed(self._last_step, self._last_seconds)
        if self._budget.seconds is None:
            return waited >= _LONGEST or step >= self._last_step * _GROWTH
        pause = max(self._last_seconds * (_GROWTH - 1), self._budget.seconds * _FINEST)
        return waited >= min(pause, _LONGEST)

    def _passed(self, step: int, seconds: float) -> int:
        """How many of the evenly spaced evaluations are due; 1/49 × 49 is below 1."""
        return int(self._budget.spent(step, seconds) * (self._budget.evaluations or 0) + 1e-9)
