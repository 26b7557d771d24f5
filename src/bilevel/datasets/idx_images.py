"""Images and labels in four idx files, as MNIST and its successors are published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bilevel.datasets.download import Remote, fetch_missing, verify
from bilevel.datasets.idx import read_idx
from bilevel.datasets.origin import BarFor
from bilevel.datasets.tables import Dataset, LabelledRows, TableOrigin


@dataclass(frozen=True, kw_only=True)
class IdxImages(TableOrigin):
    """A data set of images in idx files.

    Args:
        checksums: of the four files, by name, such as "sha256:440f...".
    """

    checksums: Mapping[str, str]

    def files(self, root: Path) -> list[Path]:
        return [root / self.name / file for file in self.checksums]

    def download(self, root: Path, progress: BarFor | None) -> None:
        remotes = [Remote(self.source + file, known) for file, known in self.checksums.items()]
        fetch_missing(self.name, self.folder(root), remotes, progress)

    def read(self, root: Path) -> Dataset:
        for path in self.files(root):
            verify(path, self.checksums[path.name])
        folder = self.folder(root)
        train, test = _part(folder, "train"), _part(folder, "t10k")
        return Dataset(self.name, train, test, self.class_names)


def _part(folder: Path, prefix: str) -> LabelledRows:
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", dimensions=3)
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", dimensions=1)
    X = images.reshape(len(images), -1).astype(np.float32)
    X /= 255
    return X, labels.astype(np.int64)
