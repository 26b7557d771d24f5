"""Training: the outer loop, with validations."""

from __future__ import annotations

import statistics
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.methods import flag
from bilevel.apps.few_shot.run_folder import Limits, Line, RunFolder, lines_of, text_of
from bilevel.apps.few_shot.scores import Accuracy, accuracy
from bilevel.apps.few_shot.settings import Settings
from bilevel.datasets import ImageClasses
from bilevel.durable import interruption
from bilevel.errors import UserError
from bilevel.problem.identity.digests import digest_of_tensor
from bilevel.problem.peers import Peers
from bilevel.problem.sharding import shard
from bilevel.runs.minimize import minimize
from bilevel.runs.progress import Progress, StatefulCallback
from bilevel.runs.result import Result

_SAVE_SECONDS = 30.0  # the most that a crash can cost
_LOSS_EVERY = 10  # steps; f costs a third of a step
_VALIDATION_SEED = 0  # the same tasks in every training, to compare accuracies


class Watcher(AbstractContextManager[Any], Protocol):
    """A context manager that is told how a training goes."""

    def stepped(self, step: int, loss: float | None) -> None: ...
    def measuring(self, split: str, done: int, tasks: int) -> None: ...
    def validated(self, line: Line) -> None: ...


class Validation(StatefulCallback):
    """Measures the accuracy regularly, records it, and keeps the best and the last model.

    Its memory holds all lines and the losses since the last one. An interruption does not wait for
    a measurement: a model that was due is measured when the training is resumed.

    Args:
        settings: of the training.
        limits: accuracy is also measured where these end the training.
        images: to measure with.
        folder: for the models and the history.
        watcher: told how it goes.
        leads: whether this process measures and writes; the others only take part in the steps.
    """

    def __init__(
        self,
        settings: Settings,
        limits: Limits,
        images: ImageClasses,
        folder: RunFolder,
        watcher: Watcher,
        leads: bool,
    ) -> None:
        self._settings, self._limits, self._leads = settings, limits, leads
        self._folder, self._watcher = folder, watcher
        self._algorithm = settings.make_algorithm()
        self._checks = {
            split: settings.evaluation_problem(part, _VALIDATION_SEED)
            for split, part in (("train", images.train), ("validation", images.validation))
        }
        # The checkpoint identifies the training images; these are what models are compared by.
        self._measured_on = digest_of_tensor(images.validation.images)
        self.lines: list[Line] = []
        self._losses: list[float] = []
        self.due: list[dict[str, Any]] = []

    def __call__(self, progress: Progress) -> None:
        record = progress.record
        if not self._leads:
            return
        self._watcher.stepped(record.step, record.outer_value)
        self._losses += [] if record.outer_value is None else [record.outer_value]
        ends = self._limits.reached(record.step, record.seconds)
        if ends or record.step % self._settings.validate_every == 0:
            self.ask_for(record.step, record.seconds, progress.state.x)
        self.measure()

    def ask_for(self, step: int, seconds: float, x: Tensor) -> None:
        """Schedule the measurement of this model, unless it was measured."""
        if step not in {*(line.step for line in self.lines), *(each["step"] for each in self.due)}:
            self.due.append({"step": step, "seconds": seconds, "losses": self._losses, "x": x})
            self._losses = []

    def measure(self) -> None:
        """Measure all models that are due, until an interruption."""
        try:
            while self.due:
                self._validate(**self.due[0])
                del self.due[0]
        except interruption.Interrupted:
            pass  # `minimize` ends after this step; the memory holds what is still due

    def memory(self) -> dict[str, Any]:
        kept = {"losses": list(self._losses), "due": list(self.due)}
        own = {"settings": self._settings.plain(), "validation images": self._measured_on}
        return {**own, "history": text_of(self.lines), **kept}

    def remember(self, memory: dict[str, Any]) -> None:
        if memory.get("validation images", self._measured_on) != self._measured_on:
            raise UserError(
                f"the training in {self._folder.folder} was measured on other validation images "
                f"than those of {self._settings.data} now: its accuracies could not be compared. "
                "Choose another folder with --output."
            )
        self.lines = lines_of(memory["history"])
        self._losses, self.due = list(memory["losses"]), list(memory["due"])

    def _validate(self, step: int, seconds: float, losses: list[float], x: Tensor) -> None:
        train, validation = (self._accuracy(split, step, x) for split in self._checks)
        line = Line(
            step=step,
            seconds=seconds,
            loss=statistics.fmean(losses) if losses else None,
            batch_loss=losses[-1] if losses else None,
            train_accuracy=train.mean,
            train_interval=train.interval,
            validation_accuracy=validation.mean,
            validation_interval=validation.interval,
        )
        # Of equal models the first is the best: it took fewer steps.
        is_best = all(line.validation_accuracy > old.validation_accuracy for old in self.lines)
        self.lines.append(line)
        self._folder.write_history(self.lines)
        if is_best:
            found = validation.mean, validation.interval
            self._folder.save(self._folder.best, Checkpoint(self._settings, step, x, found))
        self._folder.save(self._folder.last, Checkpoint(self._settings, step, x))
        self._watcher.validated(line)

    def _accuracy(self, split: str, step: int, x: Tensor) -> Accuracy:
        tasks = self._settings.validation_tasks

        def advance(done: int) -> None:
            interruption.current().check()
            self._watcher.measuring(split, done, tasks)

        problem, algorithm = self._checks[split], self._algorithm
        return accuracy(problem, algorithm, x, tasks, step=step, advance=advance)


def train(
    settings: Settings,
    limits: Limits,
    images: ImageClasses,
    peers: Peers,
    validation: Validation,
    checkpoint: Path,
) -> Result:
    """Do this process's share of the steps.

    Every number depends on the settings alone: a training that was interrupted and resumed gives
    the same bits as one that was not.
    """
    return minimize(
        shard(settings.training_problem(images.train), peers),
        settings.make_algorithm(),
        steps=limits.steps,
        seed=settings.seed,
        callbacks=[validation],
        seconds=limits.seconds,
        evaluate_every=min(_LOSS_EVERY, settings.validate_every),
        checkpoint=checkpoint,
        checkpoint_every=_SAVE_SECONDS,
    )


def advice(settings: Settings, step: int) -> str:
    """What to try after a divergence."""
    words = {"inner_lr": "a smaller", "outer_lr": "a smaller", "ridge": "a larger"}
    options = settings.options.items()
    tries = [
        f"{words[name]} {flag(name)} than {value}"
        for name, value in options
        if name in words and value != "auto"
    ]
    return (
        f"diverged: step {step + 1} gave values that are not finite. Start again in another folder "
        f"with {', or '.join(tries)}."
    )
