"""ijcnn1: two classes, 22 features (Prokhorov, IJCNN 2001), as LIBSVM publishes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bilevel.datasets.download import download
from bilevel.datasets.libsvm import read_libsvm
from bilevel.datasets.origin import BarFor
from bilevel.datasets.tables import Dataset, LabelledRows, TableOrigin
from bilevel.errors import UserError

_HOME = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_FILES = {"ijcnn1.trn.bz2": "ijcnn1.bz2", "ijcnn1.tst.bz2": "ijcnn1.t.bz2"}


@dataclass(frozen=True, kw_only=True)
class Ijcnn1(TableOrigin):
    """Two text files, packed. Their rows are checked, however they were packed.

    Args:
        digests: SHA-256 of the rows of each part and their labels.
    """

    digests: dict[str, str]

    def files(self, root: Path) -> list[Path]:
        return [root / self.name / file for file in _FILES]

    def download(self, root: Path, progress: BarFor | None) -> None:
        for file in self.missing(root):
            bar = progress(file.name) if progress else None
            try:
                download(_HOME + _FILES[file.name], None, file, bar)
            except OSError as error:
                raise UserError(
                    f"{self.name}: could not download {_HOME}{_FILES[file.name]}: {error}\n"
                    f"Get it by other means and put it there as {file}\n"
                    f"or set BILEVEL_DATA to a folder whose subfolder {self.name} has it."
                ) from error

    def read(self, root: Path) -> Dataset:
        train, test = (self._part(file) for file in self.files(root))
        return Dataset(self.name, train, test, self.class_names)

    def _part(self, file: Path) -> LabelledRows:
        X, labels = read_libsvm(file, self.features)
        found = hashlib.sha256(X.tobytes() + labels.tobytes()).hexdigest()
        if found != self.digests[file.name]:
            raise UserError(
                f"{file} does not hold the rows that LIBSVM publishes: their SHA-256 is {found}. "
                f"Delete it and run `bilevel data get {self.name}`."
            )
        return X, (labels > 0).astype(np.int64)


ijcnn1 = Ijcnn1(
    name="ijcnn1",
    train_rows=49_990,
    test_rows=91_701,
    features=22,
    class_names=("-1", "+1"),
    source=_HOME,
    licence="none stated",
    download_bytes=3_992_772,
    digests={
        "ijcnn1.trn.bz2": ("25dca92aa29e59f31ac11f7d8217b127f26d91d72c383cc3ca9327e2e7e4e40a"),
        "ijcnn1.tst.bz2": ("439c2e1a2cf59ea8d2942a7256672d1e5f64e11d920c6018ccb507a2402d37c0"),
    },
)
