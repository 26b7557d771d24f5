"""Ctrl-C and SIGTERM as a request: the current step is finished, and the run ends with a result.

Outside the blocks below nothing changes: Ctrl-C raises KeyboardInterrupt, as everywhere in Python,
and SIGTERM ends the process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHELL = 128
_STDERR = 2  # not sys.stderr, which the signal may have interrupted
_NOTE = b"\nFinishing the current step. A second signal stops at once.\n"


class Interrupted(KeyboardInterrupt):
    """A signal ended a run; its work so far is kept.

    Args:
        number: of the signal.

    Example:
        >>> import signal
        >>> from bilevel.interruption import Interrupted
        >>> Interrupted(signal.SIGTERM).exit_code
        143
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As shells have it: 130 after Ctrl-C, 143 after SIGTERM."""
        return _SHELL + self.number


class Interruption:
    """Whether the process was asked to stop.

    Example:
        >>> import bilevel
        >>> with bilevel.interruption.graceful() as interruption:
        ...     for part in range(3):
        ...         interruption.check()  # in long work of your own: raises after Ctrl-C
        >>> interruption.requested, interruption.exit_code
        (False, 0)
    """

    def __init__(self) -> None:
        self.number: int | None = None

    @property
    def requested(self) -> bool:
        return self.number is not None

    @property
    def exit_code(self) -> int:
        """As shells have it: 130 after Ctrl-C, 143 after SIGTERM; 0 without a signal."""
        return 0 if self.number is None else _SHELL + self.number

    def check(self) -> None:
        """Raise `Interrupted` if the process was asked to stop."""
        if self.number is not None:
            raise Interrupted(self.number)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The signal handler: the first signal is a request, the second an order."""
        if self.requested:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.number = number
        with suppress(OSError):  # nobody may be there to read it
            os.write(_STDERR, _NOTE)


_NEVER = Interruption()
_blocks = [_NEVER]  # global, because signals belong to the process


def current() -> Interruption:
    """The state of the innermost `graceful` block; outside of any, one that is never requested.

    Example:
        >>> import bilevel
        >>> with bilevel.interruption.graceful() as interruption:
        ...     bilevel.interruption.current() is interruption
        True
    """
    return _blocks[-1]


@contextmanager
def graceful() -> Iterator[Interruption]:
    """Inside, Ctrl-C or SIGTERM makes `minimize` finish its step and return a result.

    Its status is `interrupted`, and its checkpoint is written. A second signal stops the process
    at once. Only the main thread receives signals: in any other, this changes nothing.

    Example:
        >>> import os, signal, torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> def ctrl_c(progress):
        ...     if progress.record.step == 3:
        ...         os.kill(os.getpid(), signal.SIGINT)
        >>> with bilevel.interruption.graceful() as interruption:
        ...     result = bilevel.minimize(
        ...         problem, bilevel.algorithms.AIDBiO(), callbacks=[ctrl_c])
        >>> str(result.status), result.state.step, interruption.requested
        ('interrupted', 3, True)
    """
    interruption = Interruption()
    with _handling(interruption.receive):
        _blocks.append(interruption)
        try:
            yield interruption
        finally:
            _blocks.remove(interruption)


@contextmanager
def raising() -> Iterator[None]:
    """Inside the block, Ctrl-C or SIGTERM raises `Interrupted` wherever the program is.

    Example:
        >>> import os, signal, bilevel
        >>> try:
        ...     with bilevel.interruption.raising():
        ...         os.kill(os.getpid(), signal.SIGTERM)
        ... except bilevel.interruption.Interrupted as interrupted:
        ...     print(interrupted, interrupted.exit_code)
        SIGTERM 143
    """

    def receive(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    with _handling(receive):
        yield


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
