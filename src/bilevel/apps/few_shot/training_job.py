"""The job of `bilevel few-shot train`: check, train, report, and say how it went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bilevel.apps.few_shot.checkpoint import Point
from bilevel.apps.few_shot.run_folder import Limits, RunFolder
from bilevel.apps.few_shot.settings import Settings
from bilevel.apps.few_shot.training import Training, advice, follow
from bilevel.apps.few_shot.training_page import write_training_page
from bilevel.cli.bars import TrainingBar
from bilevel.datasets import ImageClasses
from bilevel.durable.interruption import Interruption, graceful
from bilevel.problem.peers import Alone, Peers
from bilevel.runs.result import Status

_DIVERGED = 1
_CTRL_C = 130  # as a shell has it


@dataclass(frozen=True)
class Ending:
    """What to tell the user at the end, and the command's exit code."""

    text: str
    code: int = 0


@dataclass(frozen=True)
class Job:
    """A training that was asked for and checked.

    Args:
        settings: what to do.
        limits: how far.
        folder: where; it may hold the training's first part.
        point: where that stands; None if there is none.
        command: as typed, to go on with.
    """

    settings: Settings
    limits: Limits
    folder: RunFolder
    point: Point | None
    command: str

    @property
    def beginning(self) -> str:
        """What will be done."""
        s = self.settings
        options = ", ".join(f"{n.replace('_', ' ')} {value}" for n, value in s.options.items())
        begin = (
            f"{s.algorithm} on {s.data}, {s.ways}-way {s.shots}-shot, {s.batch} tasks a step: "
            f"{options}; {s.filters} filters"
        )
        if self.point is None or self._is_done:
            return begin
        return f"{begin}\ngoes on from step {self.point.state.step:,} in {self.folder.folder}"

    @property
    def _is_done(self) -> bool:
        return self.point is not None and self.point.is_measured and self.limits.reached(self.point)

    def run(self, load: Callable[[], ImageClasses], peers: Peers | None = None) -> Ending:
        """Train up to the limits, unless they are reached already.

        Args:
            load: gets the images.
            peers: who shares the tasks of each step; those that do not lead call `follow`.
        """
        peers = peers or Alone()
        peers.told(not self.limits.reached(self.point))
        if self._is_done:
            return Ending(f"It had ended before; go further with more --steps.\n{self._results()}")
        images, done = load(), self.point.state.step if self.point else 0
        bar = TrainingBar(self.settings.algorithm, self.limits.steps, done)
        training = Training(self.settings, images, self.folder, self.point, bar, peers)
        with self.folder.locked(), graceful() as interruption:
            self.folder.open(self.settings, self.limits, self.point, self.command)
            return self._train(training, bar, interruption)

    def follow(self, load: Callable[[], ImageClasses], peers: Peers) -> None:
        """Do this process's share, if the leader has anything to do."""
        if peers.told(None):
            with graceful():
                follow(self.settings, self.limits, load(), peers)

    def _train(self, training: Training, bar: TrainingBar, interruption: Interruption) -> Ending:
        try:
            with bar:
                status = training.run(self.limits)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if status is Status.INTERRUPTED:
            return self._interrupted(training.point, interruption.exit_code or _CTRL_C)
        if status is Status.DIVERGED:
            why = advice(self.settings, training.point.state.step if training.point else 0)
            self._report("diverged", [why])
            return Ending(why + (f"\n{self._results()}" if training.point else ""), _DIVERGED)
        self._report(str(status).replace("_", " "))
        return Ending(self._results())

    def _interrupted(self, point: Point | None, code: int) -> Ending:
        if point is None:
            return Ending("stopped before the first step was done: nothing is kept", code)
        text = f"stopped after step {point.state.step:,}, which is kept in {self.folder.last}"
        self._report("interrupted", ["The training is not at its end."])
        return Ending(f"{text}\nto go on: {self.command}", code)

    def _report(self, ending: str, notices: list[str] | None = None) -> None:
        write_training_page(
            self.folder.report,
            self.settings,
            self.folder.history(),
            notices or [],
            ending,
            self.command,
        )

    def _results(self) -> str:
        history = self.folder.history()
        last = history[-1]
        best = max(history, key=lambda line: line.validation_accuracy)
        mean, interval = 100 * best.validation_accuracy, 100 * best.validation_interval
        return (
            f"at step {last.step:,} after {last.seconds:,.1f} s, evaluation excluded\n"
            f"best validation accuracy: {mean:.2f} ± {interval:.2f} % over "
            f"{self.settings.validation_tasks} tasks, at step {best.step:,}\n"
            f"model:  {self.folder.best}\n"
            f"report: {self.folder.report}\n"
            f"test it: bilevel few-shot evaluate {self.folder.best}"
        )


def prepare(settings: Settings, limits: Limits, folder: RunFolder, command: str) -> Job:
    """Check the folder, and find where to go on; nothing is written that stays."""
    return Job(settings, limits, folder, folder.check(settings), command)
