"""A folder of checkpoints: the last two are kept.

FOLDER/step-000000000012.pt
       step-000000000013.pt
"""

from __future__ import annotations

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilevel.durable import sealed
from bilevel.durable.files import remove_parts
from bilevel.errors import UserError

_KEPT = 2


@dataclass(frozen=True)
class Store:
    """The checkpoints of one run.

    Example:
        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> for step in range(4):
        ...     store.save(step, {"answer": 10 * step})
        >>> store.load(), [file.name for file in store.files()]
        ({'answer': 30}, ['step-000000000002.pt', 'step-000000000003.pt'])
    """

    folder: Path

    def files(self) -> list[Path]:
        """From the oldest to the newest."""
        return sorted(self.folder.glob("step-*.pt"))

    def save(self, step: int, content: dict[str, Any]) -> None:
        """Write a checkpoint, then remove all but the last two.

        Raises:
            OSError: it cannot be written; existing ones stay.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        sealed.write(self.folder / f"step-{step:012}.pt", content)
        for file in self.files()[:-_KEPT]:
            file.unlink(missing_ok=True)

    def load(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole; None if there is none at all.

        A damaged one is renamed, with a warning.

        Raises:
            UserError: there are some, but all are damaged.
        """
        if not self.folder.is_dir():
            return None
        remove_parts(self.folder)
        damaged: dict[Path, sealed.DamagedError] = {}
        for file in reversed(self.files()):
            try:
                content: dict[str, Any] = sealed.read(file)
            except sealed.DamagedError as error:
                damaged[file] = error
            else:
                self._put_aside(damaged)
                return content
        if damaged:
            raise UserError(
                f"no checkpoint in {self.folder} is whole: delete the folder to start afresh"
            )
        return None

    def clear(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _put_aside(self, damaged: dict[Path, sealed.DamagedError]) -> None:
        for file, error in damaged.items():
            warnings.warn(
                f"the checkpoint {file} is damaged ({error}): the one before it is used",
                RuntimeWarning,
                stacklevel=2,
            )
            file.replace(file.with_suffix(".damaged"))
