"""Digits: the 1,797 small handwritten digits that ship with scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bilevel.datasets.extras import extra
from bilevel.datasets.origin import BarFor
from bilevel.datasets.tables import Dataset, TableOrigin
from bilevel.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Digits(TableOrigin):
    """The files ship with scikit-learn; the split into train and test rows is our own."""

    def files(self, root: Path) -> list[Path]:
        package = Path(extra("sklearn").__file__).parent
        return [package / "datasets" / "data" / "digits.csv.gz"]

    def download(self, root: Path, progress: BarFor | None) -> None:
        raise UserError(f"{self.files(root)[0]} is missing: install scikit-learn again")

    def read(self, root: Path) -> Dataset:
        X, y = extra("sklearn.datasets").load_digits(return_X_y=True)
        train_X, test_X, train_y, test_y = extra("sklearn.model_selection").train_test_split(
            (X / 16).astype(np.float32),  # its pixels are 0, ..., 16
            y.astype(np.int64),
            train_size=self.train_rows,
            test_size=self.test_rows,
            stratify=y,
            random_state=0,
        )
        return Dataset(self.name, (train_X, train_y), (test_X, test_y), self.class_names)


digits = Digits(
    name="digits",
    train_rows=1437,
    test_rows=360,
    features=64,
    class_names=tuple("0123456789"),
    source="https://archive.ics.uci.edu/dataset/80, by scikit-learn",
    licence="CC BY 4.0",
    download_bytes=0,
)
