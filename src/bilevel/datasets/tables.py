"""Data sets that are tables: a row for each example, and its label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bilevel.datasets.download import Remote, fetch_missing
from bilevel.datasets.origin import BarFor, Labels, Origin

LabelledRows = tuple[Any, Labels]  # rows: a float32 array, or a float32 csr_array; and their labels


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows and labels, for training and for testing.

    Args:
        name: as on the command line.
        train: (X, y); X is a float32 array or CSR matrix with a row for each label of y, int64.
        test: the same for the rows that the authors of the data set held out.
        class_names: the meaning of labels 0, 1, ...

    Example:
        >>> import numpy as np
        >>> from bilevel.datasets import Dataset
        >>> rows = np.zeros((3, 2), np.float32), np.array([0, 1, 1])
        >>> data = Dataset("mine", train=rows, test=rows, class_names=("no", "yes"))
        >>> X, y = data.train
        >>> [data.class_names[label] for label in y]
        ['no', 'yes', 'yes']
    """

    name: str
    train: LabelledRows
    test: LabelledRows
    class_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TableOrigin(Origin[Dataset]):
    """A data set that is a table.

    Args:
        train_rows, test_rows, features: its size; a file of another size is refused.
        class_names: the meaning of labels 0, 1, ...

    Example:
        >>> from bilevel.datasets import catalogue
        >>> origin = catalogue()["mnist"]
        >>> origin.train_rows, origin.features, origin.loader
        (60000, 784, 'load')
    """

    kind: ClassVar[str] = "rows with labels, for hyper-cleaning and learned penalties"
    loader: ClassVar[str] = "load"

    train_rows: int
    test_rows: int
    features: int
    class_names: tuple[str, ...]

    def facts(self, root: Path) -> dict[str, str]:
        return {
            "train rows": f"{self.train_rows:,}",
            "test rows": f"{self.test_rows:,}",
            "features": f"{self.features:,}",
            "classes": f"{len(self.class_names):,}",
        }

    def check(self, root: Path, data: Dataset) -> None:
        for part, (X, y), rows in (
            ("train", data.train, self.train_rows),
            ("test", data.test, self.test_rows),
        ):
            self._expect(root, f"shape of the {part} rows", X.shape, (rows, self.features))
            self._expect(root, f"shape of the {part} labels", y.shape, (rows,))
            outside = y[(y < 0) | (y >= len(self.class_names))]
            self._expect(root, f"{part} labels outside the classes", outside[:5].tolist(), [])
        self._expect(root, "class names", data.class_names, self.class_names)


@dataclass(frozen=True, kw_only=True)
class PublishedTable(TableOrigin):
    """A table whose files are kept as they are published."""

    @property
    @abstractmethod
    def remotes(self) -> Sequence[Remote]:
        """The published files."""

    def files(self, root: Path) -> list[Path]:
        return [root / self.name / remote.file for remote in self.remotes]

    def download(self, root: Path, progress: BarFor | None) -> None:
        fetch_missing(self.name, self.folder(root), self.remotes, progress)
