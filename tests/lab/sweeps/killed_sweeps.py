"""Several workers at one sweep, of whom one after the other is killed, until all is done.

    python killed_sweeps.py STORAGE NAME KILLS [TRIALS]

The workers are processes forked from this one, which has everything loaded. The first one is
killed right after it has claimed a point, before it can say or do anything else; the next ones
never come to the end of a trial, and are killed at it; later ones whenever it may be. Prints, as
JSON, how many left a trial behind, and what the last ones found.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from typing import Any

import optuna
import torch
from optuna.trial import TrialState

from bilevel.lab.experiments.experiment import Experiment
from bilevel.lab.sweeps.shared_trials import Claim, SharedTrials
from bilevel.lab.sweeps.storage import opened
from bilevel.lab.sweeps.sweep import sweep

GRID = {"stoc": {"inner_lr": [0.1, 0.3, 1.0], "outer_lr": [0.01, 0.1, 1.0]}}
WORKERS = 3


def experiment(name: str) -> Experiment:
    batch = {"inner": 20, "outer": 20, "hessian": 20, "cross": 20}
    return Experiment.model_validate(
        {
            "name": name,
            "title": "A tiny experiment",
            "data": "digits",
            "seeds": [0],
            "threads": 1,
            "problem": {"kind": "hyper-cleaning", "train_rows": 200, "validation_rows": 100},
            "budget": {"steps": 20},
            "algorithms": [
                {"label": "stoc", "name": "stocbio", "settings": {"neumann_lr": 1, "batch": batch}}
            ],
            "sweep": GRID,
        }
    )


class Workers:
    def __init__(self, storage: str, name: str, trials: int | None) -> None:
        self._storage, self._experiment, self._trials = storage, experiment(name), trials
        self._pipes: dict[int, int] = {}

    def begin(self, stuck_in: tuple[type, str] | None = None) -> int:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if stuck_in is not None:
                    setattr(*stuck_in, lambda *_: time.sleep(1e6))
                best = sweep(self._experiment, self._storage, self._trials)["stoc"]
                os.write(writing, json.dumps([best.settings, best.loss, best.trials]).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(writing)
        self._pipes[child] = reading
        return child

    def end(self, child: int) -> Any:
        """What a worker has found; None if it was killed."""
        with os.fdopen(self._pipes.pop(child)) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return None
        assert os.WEXITSTATUS(status) == 0, "a worker failed"
        return json.loads(text)


def has_begun(study: optuna.Study, child: int, *states: TrialState) -> bool:
    trials = study.get_trials(deepcopy=False, states=states or None)
    return any(trial.user_attrs["worker"]["process"] == child for trial in trials)


def has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def main(storage: str, name: str, kills: int, trials: int | None) -> None:
    torch.set_num_threads(1)
    sweep(experiment("warm"), "sqlite://", 1)  # to have all loaded
    workers, moments, left = Workers(storage, name, trials), random.Random(0), 0
    places = [(SharedTrials, "_holds"), (Claim, "finish"), (Claim, "finish")]
    working = [workers.begin(place) for place in places]
    # Opened after the first fork: connections to a server must not be shared.
    with opened(storage) as store:
        study = optuna.create_study(study_name=f"{name}/stoc", storage=store, load_if_exists=True)
        for kill in range(kills):
            victim = working.pop(0 if kill < WORKERS else moments.randrange(WORKERS))
            while not has_begun(study, victim) and not has_ended(victim):
                time.sleep(0.001)
            os.kill(victim, signal.SIGKILL)
            workers.end(victim)
            # Another worker may have failed its trial already.
            left += has_begun(study, victim, TrialState.RUNNING, TrialState.FAIL)
            working.append(workers.begin())
    found = [workers.end(worker) for worker in working]
    print(json.dumps({"left": left, "found": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if sys.argv[4:] else None)
