"""20 Newsgroups: 18,846 messages by date (Lang, 1995), as counts of words."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from bilevel.datasets.extras import extra
from bilevel.datasets.npz import open_npz, write_npz
from bilevel.datasets.origin import BarFor, advancing
from bilevel.datasets.tables import Dataset, LabelledRows, TableOrigin
from bilevel.errors import refusing

_CLASS_NAMES = """
alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware
comp.windows.x misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey
sci.crypt sci.electronics sci.med sci.space soc.religion.christian talk.politics.guns
talk.politics.mideast talk.politics.misc talk.religion.misc
"""
_REMOVED = ("headers", "footers", "quotes")


@dataclass(frozen=True, kw_only=True)
class Newsgroups(TableOrigin):
    """One .npz of plain arrays: {train,test}_{data,indices,indptr,shape,y} and target_names.

    Made by scikit-learn's fetcher, which verifies a checksum: word counts of the messages without
    headers, footers and quotes, each row scaled to length one.
    """

    def files(self, root: Path) -> list[Path]:
        return [root / self.name / "20news.npz"]

    def download(self, root: Path, progress: BarFor | None) -> None:
        path = self.files(root)[0]
        advice = (
            f"\nTry again, or run `bilevel data get {self.name}` on a machine with a network "
            f"and copy {path.name} from the folder that `bilevel data path {self.name}` prints "
            f"there to {path.parent}\n"
            f"or set BILEVEL_DATA to a folder that has {self.name}/{path.name}."
        )
        with (
            refusing(f"{self.name}: could not make {path}", OSError, advice=advice),
            advancing(progress, "20news-bydate.tar.gz", 0),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
                arrays = _fetch(scratch)
            write_npz([path], [arrays], np.savez_compressed)

    def read(self, root: Path) -> Dataset:
        with open_npz(self.files(root)[0], self.name) as arrays:
            train, test = _part(arrays, "train"), _part(arrays, "test")
            class_names = tuple(str(name) for name in arrays["target_names"])
        return Dataset(self.name, train, test, class_names)


def _fetch(scratch: str) -> dict[str, Any]:
    """The arrays, from scikit-learn, which caches its pickles in `scratch`."""
    arrays: dict[str, Any] = {}
    for part in ("train", "test"):
        bunch = extra("sklearn.datasets").fetch_20newsgroups_vectorized(
            subset=part, remove=_REMOVED, data_home=scratch
        )
        X = scipy.sparse.csr_array(bunch.data, dtype=np.float32)
        arrays |= {
            f"{part}_data": X.data,
            f"{part}_indices": X.indices,
            f"{part}_indptr": X.indptr,
            f"{part}_shape": np.asarray(X.shape, np.int64),
            f"{part}_y": np.asarray(bunch.target, np.int64),
            "target_names": np.asarray(bunch.target_names, str),
        }
    return arrays


def _part(arrays: Any, part: str) -> LabelledRows:
    shape = tuple(arrays[f"{part}_shape"].tolist())
    csr = tuple(arrays[f"{part}_{key}"] for key in ("data", "indices", "indptr"))
    X = scipy.sparse.csr_array(csr, shape=shape, dtype=np.float32)
    X.check_format(full_check=True)
    return X, arrays[f"{part}_y"].astype(np.int64)


newsgroups = Newsgroups(
    name="newsgroups",
    train_rows=11_314,
    test_rows=7_532,
    features=101_631,
    class_names=tuple(_CLASS_NAMES.split()),
    source="http://qwone.com/~jason/20Newsgroups/, by scikit-learn",
    licence="none stated: messages by their authors",
    download_bytes=14_464_277,
)
