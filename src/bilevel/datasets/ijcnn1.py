"""ijcnn1: two classes, 22 features (Prokhorov, IJCNN 2001), as LIBSVM publishes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bilevel.datasets.download import Remote
from bilevel.datasets.tables import Dataset, LabelledRows, PublishedTable
from bilevel.errors import UserError, refusing

_HOME = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_FILES = {"ijcnn1.trn.bz2": "ijcnn1.bz2", "ijcnn1.tst.bz2": "ijcnn1.t.bz2"}


@dataclass(frozen=True, kw_only=True)
class Ijcnn1(PublishedTable):
    """Two text files, packed. Their rows are checked, however they were packed.

    Args:
        digests: SHA-256 of the rows of each part and their labels.
    """

    digests: dict[str, str]

    remotes = tuple(Remote(_HOME + there, None, here) for here, there in _FILES.items())

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


def read_libsvm(path: Path, features: int) -> tuple[Any, Any]:
    """The rows of a text file by LIBSVM, dense in single precision, and their labels.

    Args:
        path: a text file, or one that ends in .bz2.
        features: how many there are; indices count from 1.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "rows")
        ...     _ = path.write_text("-1 1:0.5\\n+1 2:2 3:1\\n")
        ...     read_libsvm(path, features=3)
        (array([[0.5, 0. , 0. ],
               [0. , 2. , 1. ]], dtype=float32), array([-1,  1]))
    """
    from sklearn.datasets import load_svmlight_file

    what = f"{path} is not a complete LIBSVM file of {features} features"
    with refusing(what, ValueError, OSError, EOFError, OverflowError):
        # 64 bits for the labels' sake, which are read in the same precision.
        X, labels = load_svmlight_file(str(path), n_features=features, zero_based=False)
        return X.toarray().astype(np.float32), labels.astype(np.int64)


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
        "ijcnn1.trn.bz2": "25dca92aa29e59f31ac11f7d8217b127f26d91d72c383cc3ca9327e2e7e4e40a",
        "ijcnn1.tst.bz2": "439c2e1a2cf59ea8d2942a7256672d1e5f64e11d920c6018ccb507a2402d37c0",
    },
)
