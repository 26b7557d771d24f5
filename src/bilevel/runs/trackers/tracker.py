"""What all trackers share: the callback, and the interface of a log."""

from __future__ import annotations

import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from bilevel.algorithms import Algorithm
from bilevel.arguments import positive_integer
from bilevel.errors import UserError
from bilevel.runs.checkpoints.identity import identity_of_settings
from bilevel.runs.progress import Progress
from bilevel.runs.result import Result

Values = Mapping[str, float]
Settings = Mapping[str, str]
BROKEN_OFF = "broken_off"  # the status of a run that raised an error


class Log(ABC):
    """Where curves go. A run that is resumed after a kill continues in the same log.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> from bilevel.trackers import Log, Tracker
        >>> class Steps(Log):
        ...     seen = ()
        ...     def begin(self, step, settings): ...
        ...     def write(self, step, values): self.seen += (step,)
        ...     def end(self, status, message): ...
        >>> with Tracker(log := Steps()) as tracker:
        ...     result = bilevel.minimize(halves(), steps=2, callbacks=[tracker])
        >>> log.seen
        (1, 2)
    """

    @abstractmethod
    def begin(self, step: int, settings: Settings) -> None:
        """Prepare for the values of this step and later ones."""

    @abstractmethod
    def write(self, step: int, values: Values) -> None:
        """Write the values of a step, each under its name."""

    @abstractmethod
    def end(self, status: str, message: str) -> None:
        """Write how the run ended, and release all that is open."""


class Tracker(AbstractContextManager["Tracker"]):
    """A callback that writes each step of a run into a log, under the step's own number.

    The log gets the outer value and the metrics where they were evaluated, the hypergradient's
    norm, the seconds and the counts; the algorithm's settings; and the status at the end. If the
    log fails, the run continues without it, with a warning.

    Args:
        log: a `TensorBoard` or an `MLflow`.
        algorithm: whose settings to write down.
        every: n writes only every n-th step.

    Example:
        >>> import tempfile, torch, bilevel
        >>> from bilevel.trackers import TensorBoard, Tracker
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> algorithm = bilevel.algorithms.AIDBiO()
        >>> with Tracker(TensorBoard(tempfile.mkdtemp()), algorithm) as tracker:
        ...     result = tracker.finish(
        ...         bilevel.minimize(problem, algorithm, steps=3, callbacks=[tracker]))
    """

    def __init__(self, log: Log, algorithm: Algorithm | None = None, every: int = 1) -> None:
        self._log, self._every = log, positive_integer("every", every)
        self._settings = {} if algorithm is None else identity_of_settings("algorithm", algorithm)
        self._has_begun = self._has_failed = False

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._has_begun:  # and `finish` was not called
            self._end(BROKEN_OFF, "" if error is None else repr(error))

    def __call__(self, progress: Progress) -> None:
        record = progress.record
        if record.step % self._every:
            return
        values = {"hypergradient_norm": record.hypergradient_norm, "seconds": record.seconds}
        if record.outer_value is not None:
            values["outer_value"] = record.outer_value
        values |= {f"metrics/{name}": value for name, value in record.metrics.items()}
        values |= {f"counts/{name}": count for name, count in dict(record.counts).items()}
        self.write(record.step, values)

    def write(self, step: int, values: Values) -> None:
        """Write values that do not come from a `Progress`."""
        if self._has_failed:
            return
        try:
            if not self._has_begun:
                self._log.begin(step, self._settings)
                self._has_begun = True
            self._log.write(step, values)
        # A log is a convenience: hours of work must not be lost to a full disk or a dead server.
        except Exception as error:
            self._fail(error)

    def finish(self, result: Result) -> Result:
        """Write how a run ended; return its result."""
        if not self._has_begun and not self._has_failed:
            self.write(result.state.step, {})
        self._end(str(result.status), result.message)
        return result

    def _end(self, status: str, message: str) -> None:
        try:
            if self._has_begun:
                self._log.end(status, message)
        except Exception as error:
            self._fail(error)
        self._has_begun = False

    def _fail(self, error: Exception) -> None:
        # A missing package or a wrong address is for the user to fix at once.
        if isinstance(error, UserError):
            raise error
        self._has_failed = True
        warnings.warn(
            f"the tracker failed ({type(error).__name__}: {error}): the run continues without it",
            RuntimeWarning,
            stacklevel=3,
        )


def extra(module: str, package: str) -> Any:
    """A module of the optional packages."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f'this tracker needs {package}: pip install "bilevel[trackers]"') from error
