"""Training: the outer loop, with validation and checkpoints on its way."""

from __future__ import annotations

import statistics
import time
import warnings
from dataclasses import replace
from typing import Protocol

from bilevel.apps.few_shot.checkpoint import Best, Point
from bilevel.apps.few_shot.methods import flag
from bilevel.apps.few_shot.run_folder import Limits, Line, RunFolder
from bilevel.apps.few_shot.scores import Accuracy, accuracy
from bilevel.apps.few_shot.settings import Settings
from bilevel.datasets import ImageClasses
from bilevel.durable import interruption
from bilevel.problem.peers import Peers
from bilevel.problem.sharding import shard
from bilevel.runs.minimize import Progress, minimize
from bilevel.runs.result import Past, Status

_SAVE_SECONDS = 60.0
_LOSS_EVERY = 10  # steps; f costs a third of a step
_VALIDATION_SEED = 0


class Watcher(Protocol):
    """Who is told how a training goes."""

    def stepped(self, step: int, loss: float | None) -> None: ...
    def measuring(self, split: str, done: int, tasks: int) -> None: ...
    def validated(self, line: Line) -> None: ...


class Training:
    """A training in a folder, from its start or from where it stands.

    Every number depends on the settings alone: a training that was broken off and goes on ends
    with the bits of one that was not.

    Args:
        settings: what to do.
        images: to train and to validate with.
        folder: opened for these settings.
        point: where to go on; None at the start.
        watcher: is told how it goes.
        peers: who shares the tasks of each step, of whom this process leads.
    """

    def __init__(
        self,
        settings: Settings,
        images: ImageClasses,
        folder: RunFolder,
        point: Point | None,
        watcher: Watcher,
        peers: Peers,
    ) -> None:
        self.settings, self.folder, self.point = settings, folder, point
        self._watcher = watcher
        self._algorithm = settings.make_algorithm()
        self._problem = shard(settings.training_problem(images.train), peers)
        self._checks = {
            split: settings.evaluation_problem(part, _VALIDATION_SEED)
            for split, part in (("train", images.train), ("validation", images.validation))
        }
        self._saved = time.monotonic()

    def run(self, limits: Limits) -> Status:
        """Go on up to the limits. When a signal stops it, the last step is kept."""
        try:
            status = Status.STEP_LIMIT if limits.reached(self.point) else self._steps(limits)
            if status is Status.INTERRUPTED:
                self._keep()
            elif self.point and not self.point.is_measured:  # time was up, or it diverged
                self.point = self._validate(self.point)
                self._keep()
        except KeyboardInterrupt:
            self._keep()
            raise
        return status

    def _steps(self, limits: Limits) -> Status:
        return minimize(
            self._problem,
            self._algorithm,
            steps=limits.steps,
            seed=self.settings.seed,
            callbacks=[self._after_step],
            seconds=limits.seconds,
            evaluate_every=_loss_every(self.settings),
            after=Past(self.point.state, self.point.seconds) if self.point else None,
        ).status

    def _after_step(self, progress: Progress) -> None:
        record, old = progress.record, self.point
        loss = record.outer_value
        losses = (old.losses if old else ()) + (() if loss is None else (loss,))
        validated, best = (old.validated, old.best) if old else (0, None)
        point = Point(progress.state, record.seconds, losses, best, validated)
        self._watcher.stepped(record.step, loss)
        due = record.step % self.settings.validate_every == 0 or record.step == progress.steps
        point = self._validate(point) if due else point
        if due or time.monotonic() - self._saved > _SAVE_SECONDS:
            self._try_to_save(point)
        self.point = point  # now that all of the step is done: an interrupt keeps what is complete

    def _try_to_save(self, point: Point) -> None:
        try:
            self.folder.save_last(self.settings, point)
        except OSError as error:
            warnings.warn(
                f"step {point.state.step} could not be saved in {self.folder.folder} ({error}): "
                "what was saved before is kept, and the next is tried",
                RuntimeWarning,
                stacklevel=2,
            )
        self._saved = time.monotonic()

    def _keep(self) -> None:
        """Save the last step; there is no next one to try."""
        if self.point:
            with self.folder.named_errors():
                self.folder.save_last(self.settings, self.point)

    def _validate(self, point: Point) -> Point:
        """Measure, write it down, and keep the model if none was better."""
        train, validation = (self._measure(split, point) for split in self._checks)
        step, losses, best = point.state.step, point.losses, point.best
        line = Line(
            step=step,
            seconds=point.seconds,
            loss=statistics.fmean(losses) if losses else None,
            batch_loss=losses[-1] if losses else None,
            train_accuracy=train.mean,
            train_interval=train.interval,
            validation_accuracy=validation.mean,
            validation_interval=validation.interval,
        )
        self.folder.append(line)
        if best is None or validation.mean > best.accuracy:
            best = Best(step, validation.mean, validation.interval)
            self.folder.save_best(self.settings, point, best)
        self._watcher.validated(line)
        return replace(point, losses=(), best=best, validated=step)

    def _measure(self, split: str, point: Point) -> Accuracy:
        tasks = self.settings.validation_tasks
        return accuracy(
            self._checks[split],
            self._algorithm,
            point.state.x,
            tasks,
            step=point.state.step,
            advance=lambda done: self._measuring(split, done, tasks),
        )

    def _measuring(self, split: str, done: int, tasks: int) -> None:
        interruption.current().check()
        self._watcher.measuring(split, done, tasks)


def follow(settings: Settings, limits: Limits, images: ImageClasses, peers: Peers) -> None:
    """Do this process's share of the steps of a training that another leads."""
    minimize(
        shard(settings.training_problem(images.train), peers),
        settings.make_algorithm(),
        steps=limits.steps,
        seed=settings.seed,
        seconds=limits.seconds,
        evaluate_every=_loss_every(settings),
    )


def _loss_every(settings: Settings) -> int:
    return min(_LOSS_EVERY, settings.validate_every)


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
