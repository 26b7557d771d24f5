"""Covertype: 581,012 patches of forest, 7 kinds of cover (Blackard & Dean, 1999)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bilevel.datasets.download import NOT_GZIP, Remote
from bilevel.datasets.tables import Dataset, PublishedTable
from bilevel.errors import refusing

_URL = "https://ndownloader.figshare.com/files/5976039"
_CHECKSUM = "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771"


@dataclass(frozen=True, kw_only=True)
class Covtype(PublishedTable):
    """UCI's file as scikit-learn gets it: a row a line, 54 numbers and a label from 1.

    UCI's training and validation rows come first; the others are the test rows.
    """

    remotes = (Remote(_URL, _CHECKSUM, "covtype.data.gz"),)  # UCI itself has it by this name, too

    def read(self, root: Path) -> Dataset:
        file = self.files(root)[0]
        with (
            refusing(f"{file} is not a complete table of numbers", *NOT_GZIP, ValueError),
            gzip.open(file, "rt", encoding="ascii") as lines,
        ):
            table = np.loadtxt(lines, np.float32, delimiter=",", ndmin=2)
        X, labels = np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64) - 1
        k = self.train_rows
        return Dataset(self.name, (X[:k], labels[:k]), (X[k:], labels[k:]), self.class_names)


covtype = Covtype(
    name="covtype",
    train_rows=15_120,
    test_rows=565_892,
    features=54,
    class_names=(
        "spruce/fir",
        "lodgepole pine",
        "ponderosa pine",
        "cottonwood/willow",
        "aspen",
        "douglas fir",
        "krummholz",
    ),
    source="https://archive.ics.uci.edu/dataset/31/covertype, by figshare",
    licence="CC BY 4.0",
    download_bytes=11_240_707,
)
