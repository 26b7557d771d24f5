"""What is known of a data set: its facts, its files, and how to get and read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bilevel.errors import UserError

Labels = NDArray[np.int64]
Part = tuple[Any, Labels]  # rows: a float32 array, or a float32 csr_array; and their labels


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows and labels, for training and for testing.

    Args:
        name: as on the command line.
        train: (X, y); X is a float32 array or CSR matrix with a row each, y is int64.
        test: the same, for the rows held out by whoever made the data set.
        class_names: the meaning of labels 0, 1, ...
    """

    name: str
    train: Part
    test: Part
    class_names: tuple[str, ...]


class Bar(Protocol):
    """What shows a download: pooch sets `total` and calls the rest, in bytes."""

    total: int

    def update(self, amount: int) -> None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


Progress = Callable[[str], Bar]  # a bar for the file of this name


@dataclass(frozen=True, kw_only=True)
class Origin(ABC):
    """A data set that can be had.

    Args:
        name: as on the command line, and of its folder.
        train_rows, test_rows, features: its size; a file of another size is refused.
        class_names: the meaning of labels 0, 1, ...
        source: the address it comes from.
        licence: what is known of it.
        download_bytes: the size of what is downloaded.
    """

    name: str
    train_rows: int
    test_rows: int
    features: int
    class_names: tuple[str, ...]
    source: str
    licence: str
    download_bytes: int

    @abstractmethod
    def files(self, root: Path) -> list[Path]:
        """Where its files lie when `root` is the data folder."""

    @abstractmethod
    def download(self, root: Path, progress: Progress | None) -> None:
        """Get the missing files, each complete and checked or not at all."""

    @abstractmethod
    def read(self, root: Path) -> Dataset:
        """Read the files, or say which of them is damaged."""

    def folder(self, root: Path) -> Path:
        return self.files(root)[0].parent

    def missing(self, root: Path) -> list[Path]:
        return [path for path in self.files(root) if not path.is_file()]

    def load(self, root: Path, progress: Progress | None = None) -> Dataset:
        """The data, downloaded first where files are missing; writes nothing when none is."""
        try:
            if self.missing(root):
                self.download(root, progress)
            dataset = self.read(root)
        except OSError as error:
            raise UserError(f"{self.name}: its files cannot be read: {error}") from error
        for part, (X, y), rows in (
            ("train", dataset.train, self.train_rows),
            ("test", dataset.test, self.test_rows),
        ):
            self._expect(root, f"shape of the {part} rows", X.shape, (rows, self.features))
            self._expect(root, f"shape of the {part} labels", y.shape, (rows,))
            outside = y[(y < 0) | (y >= len(self.class_names))]
            self._expect(root, f"{part} labels outside the classes", outside[:5].tolist(), [])
        self._expect(root, "class names", dataset.class_names, self.class_names)
        return dataset

    def _expect(self, root: Path, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise UserError(
                f"{self.name}: {what}: found {found}, expected {expected}; these are not the "
                f"canonical files. Delete those in {self.folder(root)} and run "
                f"`bilevel data get {self.name}`."
            )
