"""Data sets: their properties, their files, and how to get and read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bilevel.errors import UserError, refusing

Data = TypeVar("Data")
Labels = NDArray[np.int64]


class Bar(Protocol):
    """A progress bar of a download, in bytes; pooch sets `total` and calls the methods."""

    total: int

    def update(self, amount: int) -> None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


BarFor = Callable[[str], Bar]  # makes a bar from a file's name


@contextmanager
def advancing(progress: BarFor | None, file: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar for making a file of `total` bytes: call it with the size of each part."""
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
    """A data set.

    Args:
        name: as on the command line.
        source: where it comes from.
        licence: as far as it is known.
        download_bytes: the size of the download; 0 if there is none.

    Example:
        >>> from bilevel.datasets import catalogue
        >>> catalogue()["mnist"].kind
        'rows with labels, for hyper-cleaning and learned penalties'
    """

    kind: ClassVar[str]  # what it holds, and for what
    loader: ClassVar[str]  # the function that loads its kind

    name: str
    source: str
    licence: str
    download_bytes: int

    @abstractmethod
    def files(self, root: Path) -> list[Path]:
        """The paths of its files; `root` is the data folder."""

    @abstractmethod
    def facts(self, root: Path) -> dict[str, str]:
        """Its size as columns of a table; all data sets of a kind have the same columns."""

    @abstractmethod
    def download(self, root: Path, progress: BarFor | None) -> None:
        """Get the missing files; each appears only when it is complete and checked."""

    @abstractmethod
    def read(self, root: Path) -> Data:
        """Read the files, or say which of them is damaged."""

    @abstractmethod
    def check(self, root: Path, data: Data) -> None:
        """Refuse data whose size is not the stated one."""

    def folder(self, root: Path) -> Path:
        return self.files(root)[0].parent

    def missing(self, root: Path) -> list[Path]:
        return [path for path in self.files(root) if not path.is_file()]

    def load(self, root: Path, progress: BarFor | None = None) -> Data:
        """The data; missing files are downloaded first, and otherwise nothing is written."""
        with refusing(f"{self.name}: its files cannot be read", OSError):
            if self.missing(root):
                self.download(root, progress)
            data = self.read(root)
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
