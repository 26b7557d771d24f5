"""The checkpoints of `minimize`: what is in them, when they are written, whom they belong to."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bilevel.durable.lock import locked
from bilevel.durable.store import Store
from bilevel.errors import UserError
from bilevel.runs.checkpoints.identity import Identity, differences
from bilevel.runs.checkpoints.saved import READABLE, Saved


class Keeper(ABC):
    """Who keeps a run."""

    @abstractmethod
    def begin(self, fresh: Saved) -> Saved:
        """Where to go on, or the fresh start if nothing was kept."""

    @abstractmethod
    def is_due(self) -> bool:
        """Whether it is time to keep the run again."""

    @abstractmethod
    def keep(self, saved: Saved) -> None:
        """Keep where the run stands; a failure is a warning, and what was kept before stays."""


class NoKeeper(Keeper):
    """Nothing is kept."""

    def begin(self, fresh: Saved) -> Saved:
        return fresh

    def is_due(self) -> bool:
        return False

    def keep(self, saved: Saved) -> None:
        pass


class FolderKeeper(Keeper):
    """Checkpoints in a folder, at least `every` seconds apart."""

    def __init__(self, store: Store, identity: Identity, every: float) -> None:
        self._store, self._identity, self._every = store, identity, every
        self._last = time.monotonic()

    def begin(self, fresh: Saved) -> Saved:
        content = self._store.load()
        if content is not None:
            self._check(content)
            return Saved.of(content)
        # The first one is written before any work: it is the proof that there is a place for it.
        try:
            self._write(fresh)
        except OSError as error:
            raise cannot_write(self._store.folder, error) from error
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
        # Also after a failure: a full disk must not be tried again after each step.
        self._last = time.monotonic()

    def _write(self, saved: Saved) -> None:
        about = {"identity": self._identity, "machine": _machine()}
        self._store.save(saved.past.state.step, {**about, **saved.plain()})

    def _check(self, content: dict[str, Any]) -> None:
        """Raise if the checkpoint is another run's; warn if the bits may differ."""
        folder, machine = self._store.folder, differences(content.get("machine", {}), _machine())
        kind = content.get("format")
        if kind not in READABLE:
            raise UserError(f"{folder} holds {kind!r}, and not {READABLE[0]!r}")
        if changed := differences(content["identity"], self._identity, newer=kind != READABLE[0]):
            note = f" (also, {', '.join(machine)})" if machine else ""
            raise UserError(
                f"{folder} holds the checkpoints of another run: {'; '.join(changed)}{note}. "
                "Choose another folder, or delete this one to start over."
            )
        if machine:
            warnings.warn(
                f"the run in {folder} continues, but its last digits may differ from those of an "
                f"unbroken run: {', '.join(machine)}",
                RuntimeWarning,
                stacklevel=4,
            )


@contextmanager
def keeper_in(
    folder: Path | str | None, every: float, identity: Callable[[], Identity]
) -> Iterator[Keeper]:
    """Who keeps a run in a folder, which is this run's alone inside the block.

    Args:
        folder: where; None keeps nothing.
        every: seconds.
        identity: gives what the run is; called only if there is a folder.

    Raises:
        UserError: the folder cannot be written to, or another run is at work in it.
    """
    if folder is None:
        yield NoKeeper()
        return
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(place, error) from error
    # Two runs in one folder would overwrite each other's checkpoints.
    with locked(place):
        yield FolderKeeper(Store(place), identity(), every)


def cannot_write(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write checkpoints to {folder} ({error}): choose another folder, or make room"
    )


def _machine() -> Identity:
    """On what the last digits depend, although the run is the same."""
    return {"torch": str(torch.__version__), "torch's threads": str(torch.get_num_threads())}
