"""The points of a grid, shared by processes that may be killed: each point is evaluated once.

A worker claims a point by adding a running trial to the study, and then looks at the other trials.
A storage numbers trials in the order in which they become visible to all: of two claims to one
point, the one with the lower number wins, and the other is withdrawn. So there is no lock that a
kill could leave behind.

A killed worker is recognised by its process on the same machine, and on any other machine by a
counter in its trial that has not increased for a minute. Its trial is then marked as failed, which
frees its point. A worker that was wrongly taken for dead finds its trial failed, and its value is
lost.

Why not Optuna's own heartbeat (tried with 5.0)? It misses a worker that is killed after its claim
and before its first beat: that trial stays RUNNING, and all others wait forever. Together with its
grid sampler and retries, three workers evaluated the 9 points of a grid 16 to 34 times.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

Params = dict[str, Any]
_TRIES = 10  # of the sampler, to find a point that is free
_WORKER, _BEATS = "worker", "beats"


@dataclass(frozen=True)
class Pulse:
    """How often a worker says that it lives, and after how long a silence it is taken for dead.

    Args:
        every, silence: seconds.
    """

    every: float = 10.0
    silence: float = 60.0


class SharedTrials:
    """The trials of one grid.

    Args:
        storage: where they are.
        study: the number of theirs, in the storage.
        choices: by the setting's name; plain values.
        goal: how many points to do, of all.
        pulse: of the workers, the same for all.
    """

    def __init__(
        self,
        storage: BaseStorage,
        study: int,
        choices: Mapping[str, list[Any]],
        goal: int,
        pulse: Pulse = Pulse(),
    ) -> None:
        self._storage, self._study, self._goal, self._pulse = storage, study, goal, pulse
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in choices.items()
        }
        grid = itertools.product(*choices.values())
        self._grid = [dict(zip(choices, values, strict=True)) for values in grid]
        random.Random(0).shuffle(self._grid)
        self._heard: dict[int, tuple[int, float]] = {}  # the beats of a trial, and since when

    def done(self) -> list[FrozenTrial]:
        """A finished trial for each point that has one, in the order of their claims."""
        first: dict[str, FrozenTrial] = {}
        for trial in self._trials(TrialState.COMPLETE):
            first.setdefault(_point(trial.params), trial)
        return list(first.values())

    def claim(self) -> Claim | None:
        """A point that is now this worker's; None if others do what is left."""
        self._bury()
        live = self._trials(TrialState.COMPLETE, TrialState.RUNNING)
        taken = {_point(trial.params) for trial in live}
        free = [params for params in self._grid if _point(params) not in taken]
        if len(taken) >= self._goal or not free:
            return None
        params = self._choose(free, live)
        trial_id = self._storage.create_new_trial(self._study, self._running(params))
        claim = Claim(self._storage, trial_id, params)
        if self._holds(claim):
            return claim
        claim.withdraw()
        return None

    @contextmanager
    def beating(self, claim: Claim) -> Iterator[None]:
        """Inside, others see that the claim's worker lives."""
        over = threading.Event()

        def beat() -> None:
            for beats in itertools.count(1):
                if over.wait(self._pulse.every):
                    return
                # A storage that is away may be back at the next beat; a lost trial is seen later.
                with suppress(StorageInternalError, UpdateFinishedTrialError):
                    self._storage.set_trial_user_attr(claim.trial_id, _BEATS, beats)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _choose(self, free: list[Params], live: list[FrozenTrial]) -> Params:
        """For a whole grid the next point; for a part of it where others went well."""
        died = Counter(_point(trial.params) for trial in self._trials(TrialState.FAIL))
        if self._goal < len(self._grid):
            # A study of our own, so that what is only thought of is not seen by others.
            seed = len(live) + died.total()  # another after each claim
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            study = optuna.create_study(sampler=sampler)
            study.add_trials(live)
            for _ in range(_TRIES):
                params = study.ask(self._distributions).params
                if params in free:
                    return params
        # What may have killed its worker comes last.
        return min(free, key=lambda params: died[_point(params)])

    def _holds(self, claim: Claim) -> bool:
        """Whether it is the first for its point, and one of as many as are wanted."""
        trials = self._trials(TrialState.COMPLETE, TrialState.RUNNING)
        ours = self._storage.get_trial(claim.trial_id).number
        before = {_point(trial.params) for trial in trials if trial.number < ours}
        return _point(claim.params) not in before and len(before) < self._goal

    def _bury(self) -> None:
        """Fail the trials whose workers are dead."""
        for trial in self._trials(TrialState.RUNNING):
            if self._is_dead(trial):
                find = self._storage.get_trial_id_from_study_id_trial_number
                Claim(self._storage, find(self._study, trial.number), trial.params).withdraw()

    def _is_dead(self, trial: FrozenTrial) -> bool:
        worker, here = trial.user_attrs.get(_WORKER, {}), _place()
        known = here is not None and worker.get("place") == here
        if known and worker["process"] != os.getpid():  # ours may be one that Ctrl-C interrupted
            return bool(_born(worker["process"]) != worker["born"])
        beats, now = trial.user_attrs.get(_BEATS, 0), time.monotonic()
        last, since = self._heard.get(trial.number, (None, now))
        if beats != last:
            since = now
        self._heard[trial.number] = beats, since
        return now - since > self._pulse.silence

    def _running(self, params: Params) -> FrozenTrial:
        process = os.getpid()
        worker = {"place": _place(), "process": process, "born": _born(process)}
        trial = optuna.create_trial(
            state=TrialState.RUNNING,
            params=params,
            distributions=self._distributions,
            user_attrs={_WORKER: worker},
        )
        trial.datetime_start = datetime.now()
        return trial

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._study, deepcopy=False, states=states)


@dataclass(frozen=True)
class Claim:
    """A point that a worker works on.

    Args:
        storage: where its trial is.
        trial_id: its number in the storage, where other studies have trials, too.
        params: the point.
    """

    storage: BaseStorage
    trial_id: int
    params: Params

    def finish(self, value: float) -> None:
        """Tell the value; it is lost if this worker was taken for dead."""
        self._end(TrialState.COMPLETE, [value])

    def withdraw(self) -> None:
        """Leave the point to others."""
        self._end(TrialState.FAIL)

    def _end(self, state: TrialState, values: list[float] | None = None) -> None:
        with suppress(UpdateFinishedTrialError):
            self.storage.set_trial_state_values(self.trial_id, state, values)


def _point(params: Params) -> str:
    return json.dumps(params, sort_keys=True)


def _place() -> str | None:
    """Where processes have numbers of their own: this machine since its start, or a container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _born(process: int) -> str | None:
    """When a process was started; None if it has ended. Its number alone may be used again."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    state, *numbers = text.rpartition(")")[2].split()
    return None if state in "ZX" else numbers[18]
