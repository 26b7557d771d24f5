"""A folder of checkpoints: the last two are kept.

FOLDER/step-000000000012.pt
       step-000000000013.pt
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilevel.durable import sealed
from bilevel.durable.files import remove_parts
from bilevel.errors import UserError

_KEPT = 2
_NAME = re.compile(r"step-\d{12}\.pt")


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
        """From the oldest to the newest, without archives by other programs."""
        found = (file for file in self.folder.glob("step-*.pt") if _NAME.fullmatch(file.name))
        return sorted(file for file in found if file.is_file() and not _is_foreign(file))

    def save(self, step: int, content: dict[str, Any]) -> None:
        """Write a checkpoint, then remove all but the last two.

        Raises:
            OSError: it cannot be written; existing ones stay.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step:012}.pt"
        if os.path.lexists(path) and not sealed.is_sealed(path):
            raise FileExistsError(f"{path} was not written by bilevel")
        sealed.write(path, content)
        for file in self.files()[:-_KEPT]:
            if sealed.is_sealed(file):
                file.unlink(missing_ok=True)

    def load(
        self, check: Callable[[dict[str, Any]], None] = lambda content: None
    ) -> dict[str, Any] | None:
        """The newest intact checkpoint; None if there are no checkpoints.

        A damaged one is renamed, with a warning.

        Args:
            check: raises DamagedError if something that belongs to a checkpoint is damaged.

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
                check(content)
            except sealed.DamagedError as error:
                damaged[file] = error
            else:
                self._put_aside(damaged)
                return content
        if damaged:
            raise UserError(
                f"no checkpoint in {self.folder} is whole: choose another folder, or remove its "
                "step-*.pt files to start again"
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
            with suppress(OSError):  # it can stay where it is
                file.replace(file.with_suffix(".damaged"))


def _is_foreign(file: Path) -> bool:
    """Whether another program wrote it: a complete archive without our seal."""
    return not sealed.is_sealed(file) and zipfile.is_zipfile(file)
