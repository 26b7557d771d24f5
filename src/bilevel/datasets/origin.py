"""What is known of a data set: its facts, its files, and how to get and read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bilevel.errors import UserError

Data = TypeVar("Data")
Labels = NDArray[np.int64]


class Bar(Protocol):
    """What shows a download: pooch sets `total` and calls the rest, in bytes."""

    total: int

    def update(self, amount: int) -> None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


BarFor = Callable[[str], Bar]  # a bar for the file of this name


@contextmanager
def advancing(progress: BarFor | None, file: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for the making of a file of `total` bytes: call it with the size of each part."""
    if progress is None:
        yield lambda amount: None
        return
    bar = progress(file)
    bar.total = total
    try:
        yield bar.update
    finally:
        bar.close()


@dataclass(frozen=True, kw_only=True)
class Origin(ABC, Generic[Data]):
    """A data set that can be obtained.

    Args:
        name: as on the command line.
        source: the address it comes from.
        licence: what is known of it.
        download_bytes: the size of what is downloaded; 0 where nothing is.
    """

    kind: ClassVar[str]  # what it holds and what that is for
    loader: ClassVar[str]  # the function that loads its kind

    name: str
    source: str
    licence: str
    download_bytes: int

    @abstractmethod
    def files(self, root: Path) -> list[Path]:
        """Where its files lie when `root` is the data folder."""

    @abstractmethod
    def facts(self, root: Path) -> dict[str, str]:
        """Its size, as the columns of a table; the same columns for all of a kind."""

    @abstractmethod
    def download(self, root: Path, progress: BarFor | None) -> None:
        """Get the missing files, each complete and checked or not at all."""

    @abstractmethod
    def read(self, root: Path) -> Data:
        """Read the files, or say which of them is damaged."""

    @abstractmethod
    def check(self, root: Path, data: Data) -> None:
        """Refuse data of another size than stated."""

    def folder(self, root: Path) -> Path:
        return self.files(root)[0].parent

    def missing(self, root: Path) -> list[Path]:
        return [path for path in self.files(root) if not path.is_file()]

    def load(self, root: Path, progress: BarFor | None = None) -> Data:
        """The data, downloaded first where files are missing; writes nothing when none is."""
        try:
            if self.missing(root):
                self.download(root, progress)
            data = self.read(root)
        except OSError as error:
            raise UserError(f"{self.name}: its files cannot be read: {error}") from error
        self.check(root, data)
        return data

    def _expect(self, root: Path, what: str, found: object, expected: object) -> None:
        if found != expected:
            names = ", ".join(path.name for path in self.files(root))
            raise UserError(
                f"{self.name}: {what}: found {found}, expected {expected}; these are not the "
                f"canonical files. Delete {names} in {self.folder(root)} and run "
                f"`bilevel data get {self.name}`."
            )
