"""The job of `bilevel few-shot train`: check, train, report, and say how it went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.run_folder import Limits, Line, RunFolder, lines_of
from bilevel.apps.few_shot.scores import percent
from bilevel.apps.few_shot.settings import Settings
from bilevel.apps.few_shot.training import Validation, Watcher, advice, train
from bilevel.apps.few_shot.training_page import write_training_page
from bilevel.datasets import ImageClasses
from bilevel.durable.interruption import graceful
from bilevel.problem.peers import Peers
from bilevel.runs.checkpoints.saved import Saved
from bilevel.runs.result import Result, Status

_DIVERGED = _NOTHING = 1


@dataclass(frozen=True)
class Ending:
    """The final message to the user, and the command's exit code."""

    text: str
    code: int = 0


@dataclass(frozen=True)
class Job:
    """A requested training, after all checks.

    Args:
        settings: of the training.
        limits: when it ends.
        folder: for its files; it may hold an unfinished training.
        kept: its last checkpoint; None if there is none.
        command: as typed, to resume it.
    """

    settings: Settings
    limits: Limits
    folder: RunFolder
    kept: Saved | None
    command: str

    @property
    def beginning(self) -> str:
        """A description of what will be done."""
        s = self.settings
        options = ", ".join(f"{n.replace('_', ' ')} {value}" for n, value in s.options.items())
        begin = (
            f"{s.algorithm} on {s.data}, {s.ways}-way {s.shots}-shot, {s.batch} tasks a step: "
            f"{options}; {s.filters} filters"
        )
        if self._is_done or not self._done:
            return begin
        return f"{begin}\ncontinuing from step {self._done:,} in {self.folder.folder}"

    @property
    def _done(self) -> int:
        """The number of steps done."""
        return self.kept.past.state.step if self.kept else 0

    @property
    def _is_done(self) -> bool:
        if self.kept is None or self.kept.memories[0]["due"]:
            return False
        lines = lines_of(self.kept.memories[0]["history"])
        if not lines or lines[-1].step != self._done:  # the last model is still to be measured
            return False
        return self.limits.reached(self._done, self.kept.past.seconds)

    def run(
        self,
        load: Callable[[], ImageClasses],
        watch: Callable[[str, int, int], Watcher],
        peers: Peers,
    ) -> Ending:
        """Train up to the limits, unless they are reached already.

        Args:
            load: loads the images.
            watch: makes the watcher, from the algorithm, the total steps and those done.
            peers: the processes that share the tasks of each step; the first speaks to the user.
        """
        if peers.told(self._is_done):
            assert self.kept is not None
            found = self._results(lines_of(self.kept.memories[0]["history"]))
            return Ending(f"It had already ended; use more --steps to continue.\n{found}")
        settings, limits, folder, images = self.settings, self.limits, self.folder, load()
        watcher = watch(settings.algorithm, limits.steps, self._done)
        validation = Validation(settings, limits, images, folder, watcher, peers.leads)
        with graceful() as interruption:
            if not peers.leads:
                train(settings, limits, images, peers, validation, folder.checkpoints)
                return Ending("")
            folder.open(settings, limits, self.command)
            with watcher:
                result = train(settings, limits, images, peers, validation, folder.checkpoints)
                # The last step may not have been due: after a divergence its accuracy helps to
                # find the cause, and if the time is up during a step, the one before is the last.
                ended = result.status in (Status.DIVERGED, Status.TIME_LIMIT)
                if ended and result.state.step:
                    validation.ask_for(result.state.step, result.seconds, result.state.x)
                validation.measure()
            return self._ending(result, validation, interruption.exit_code)

    def _ending(self, result: Result, validation: Validation, code: int) -> Ending:
        step, lines = result.state.step, validation.lines
        if step:
            self.folder.save(self.folder.last, Checkpoint(self.settings, step, result.state.x))
        if result.status is Status.INTERRUPTED or validation.due:
            if not step:
                return Ending("stopped before the first step was done: nothing is kept", code)
            self._report(lines, "interrupted", ["The training is not finished."])
            text = f"stopped after step {step:,}, which is kept in {self.folder.last}"
            return Ending(f"{text}\nto go on: {self.command}", code)
        if not lines and result.status is Status.TIME_LIMIT:
            return Ending("no step was done in that time: allow more --seconds", _NOTHING)
        if result.status is Status.DIVERGED:
            why = advice(self.settings, step)
            self._report(lines, "diverged", [why])
            return Ending(why + (f"\n{self._results(lines)}" if lines else ""), _DIVERGED)
        self._report(lines, str(result.status).replace("_", " "), [])
        return Ending(self._results(lines))

    def _report(self, lines: Sequence[Line], ending: str, notices: Sequence[str]) -> None:
        write_training_page(self.folder.report, self.settings, lines, notices, ending, self.command)

    def _results(self, lines: Sequence[Line]) -> str:
        last, best = lines[-1], max(lines, key=lambda line: line.validation_accuracy)
        accuracy = percent(best.validation_accuracy, best.validation_interval)
        return (
            f"at step {last.step:,} after {last.seconds:,.1f} s, evaluation excluded\n"
            f"best validation accuracy: {accuracy} over "
            f"{self.settings.validation_tasks} tasks, at step {best.step:,}\n"
            f"model:  {self.folder.best}\n"
            f"report: {self.folder.report}\n"
            f"test it: bilevel few-shot evaluate {self.folder.best}"
        )


def prepare(settings: Settings, limits: Limits, folder: RunFolder, command: str) -> Job:
    """Check the folder, and find where to resume. It leaves nothing behind."""
    return Job(settings, limits, folder, folder.check(settings), command)
