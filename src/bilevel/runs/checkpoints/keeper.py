"""The checkpoints of `minimize`: what they hold, when they are written, whose they are."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bilevel.durable.folders import named_errors
from bilevel.durable.lock import locked
from bilevel.durable.log import GrowingLog
from bilevel.durable.sealed import DamagedError
from bilevel.durable.store import Store
from bilevel.errors import UserError, quoted
from bilevel.problem.identity.words import VERSION, Identity
from bilevel.runs.checkpoints.identity import differences, not_compared, other_versions
from bilevel.runs.checkpoints.saved import READABLE, Saved, lines_of, records_of
from bilevel.runs.history import HistoryRecord


class Keeper(ABC):
    """Keeps a run, so that it can be resumed."""

    @abstractmethod
    def begin(self, fresh: Saved) -> Saved:
        """What was kept, or the fresh start if there is nothing."""

    @abstractmethod
    def is_due(self) -> bool:
        """Whether it is time to keep the run again."""

    @abstractmethod
    def keep(self, saved: Saved) -> None:
        """Keep the current state; a failure is a warning, and what was kept before stays."""


class NoKeeper(Keeper):
    """Keeps nothing."""

    def begin(self, fresh: Saved) -> Saved:
        return fresh

    def is_due(self) -> bool:
        return False

    def keep(self, saved: Saved) -> None:
        pass


class FolderKeeper(Keeper):
    """Checkpoints in a folder, at least `every` seconds apart.

    The history grows in a separate file. A checkpoint has a mark of how much of it counts, and the
    last record itself, which may still change if the run continues.
    """

    def __init__(self, store: Store, identity: Identity, every: float) -> None:
        self._store, self._identity, self._every = store, identity, every
        self._log = GrowingLog(store.folder / "history.jsonl")
        self._logged = list[HistoryRecord]()
        self._last = time.monotonic()

    def begin(self, fresh: Saved) -> Saved:
        with _named_errors(self._store.folder):
            content = self._store.load(self._read_log)
            if content is not None:
                return self._of(content)
            # Written before any work, to prove that it can be written.
            self._write(fresh)
        return fresh

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= self._every

    def keep(self, saved: Saved) -> None:
        try:
            self._write(saved)
        except OSError as error:
            warnings.warn(
                f"the checkpoint after step {saved.past.state.step} could not be written to "
                f"{self._store.folder} ({error}): earlier ones stay, and the next will be tried",
                RuntimeWarning,
                stacklevel=3,
            )
        # Also after a failure: a full disk should not be tried again after each step.
        self._last = time.monotonic()

    def _write(self, saved: Saved) -> None:
        past = saved.past
        if not self._log.is_there:  # somebody has removed or cut it: it is written anew
            self._log, self._logged = GrowingLog(self._log.path), []
        final = past.history[len(self._logged) : -1]
        mark = self._log.add(lines_of(final))
        self._logged += final
        rest = replace(saved, past=replace(past, history=past.history[-1:])).plain()
        self._store.save(past.state.step, {"identity": self._identity, "log": mark, **rest})

    def _read_log(self, content: Any) -> None:
        """Read the records that a checkpoint refers to; DamagedError if they are not intact."""
        if isinstance(content, dict) and isinstance(mark := content.get("log"), dict):
            try:
                self._logged = records_of(self._log.read(mark))
            except (OSError, KeyError, TypeError, ValueError) as error:
                raise DamagedError(f"its history cannot be read: {error}") from error

    def _of(self, content: Any) -> Saved:
        """What a checkpoint holds, if it belongs to this run."""
        try:
            self._check(content)
            saved = Saved.of(content)
        except UserError:
            raise
        except Exception as error:  # a file by another program may lead to anything
            raise UserError(
                f"a checkpoint in {self._store.folder} does not hold what a run keeps "
                f"({type(error).__name__}: {error}): choose another folder, or remove its "
                "step-*.pt files to start afresh"
            ) from error
        history = [*self._logged, *saved.past.history]
        return replace(saved, past=replace(saved.past, history=history))

    def _check(self, content: dict[str, Any]) -> None:
        """Raise if the checkpoint belongs to another run; warn if the bits may differ."""
        folder, kind = self._store.folder, content.get("format")
        if kind not in READABLE:
            raise UserError(f"{folder} holds {quoted(kind)}, and not {READABLE[0]!r}")
        old, is_old = content["identity"], kind != READABLE[0]
        if is_old:
            machine = content.get("machine", {})
            old = old | {f"{VERSION}{n}" if n == "torch" else n: w for n, w in machine.items()}
        machine = other_versions(old, self._identity)
        if changed := differences(old, self._identity, newer=is_old):
            note = f" (also, {', '.join(machine)})" if machine else ""
            raise UserError(
                f"{folder} holds the checkpoints of another run: {'; '.join(changed)}{note}. "
                "Choose another folder, or delete this one to start over."
            )
        if machine:
            _warn(
                f"the run in {folder} continues, but its last digits may differ from those of an "
                f"unbroken run: {', '.join(machine)}"
            )
        unknown = not_compared(self._identity)
        if is_old:
            unknown.insert(0, "what an earlier version of bilevel did not keep")
        if unknown:
            _warn(f"the run in {folder} continues, but not all was compared: {'; '.join(unknown)}")


@contextmanager
def keeper_in(
    folder: Path | str | None, every: float, identity: Callable[[], Identity]
) -> Iterator[Keeper]:
    """The keeper of a run in a folder, which is locked inside the block.

    Args:
        folder: where; None keeps nothing.
        every: seconds between checkpoints.
        identity: describes the run; called only if there is a folder.

    Raises:
        UserError: the folder cannot be written to, or another run is at work in it.
    """
    if folder is None:
        yield NoKeeper()
        return
    with _named_errors(place := Path(folder)):
        place = place.absolute()  # a loss or a callback may change the working directory
        place.mkdir(parents=True, exist_ok=True)
    # Two runs in one folder would overwrite each other's checkpoints.
    with locked(place):
        yield FolderKeeper(Store(place), identity(), every)


def _named_errors(folder: Path) -> AbstractContextManager[None]:
    return named_errors(folder, "choose another folder, or make room", "write checkpoints")


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=6)  # where `minimize` was called
