"""Images and labels in four idx files, as MNIST and its successors are published."""

from __future__ import annotations

import gzip
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bilevel.datasets.download import NOT_GZIP, Remote, verify
from bilevel.datasets.tables import Dataset, LabelledRows, PublishedTable
from bilevel.errors import UserError, refusing

FILES = tuple(
    f"{part}-{kind}-ubyte.gz"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)
_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read a gzipped idx file of bytes.

    Two zero bytes, the type of the elements, the number of dimensions; then each dimension's
    size as a big-endian 32-bit integer; then exactly as many bytes as the sizes say.

    Args:
        path: of the .gz file.
        dimensions: how many the file must have: 3 for images, 1 for labels.

    Example:
        >>> import gzip, pathlib, tempfile
        >>> from bilevel.datasets.idx_images import read_idx
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "labels.gz")
        ...     _ = path.write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1])))
        ...     read_idx(path, dimensions=1)
        array([7, 2, 1], dtype=uint8)
    """
    header = struct.Struct(f">HBB{dimensions}I")
    with refusing(f"{path}: not a complete gzip file", *NOT_GZIP), gzip.open(path) as stream:
        head = stream.read(header.size)
        if len(head) < header.size:
            raise UserError(
                f"{path}: the header ends after {len(head)} of {header.size} bytes: "
                f"not an idx file with {dimensions} dimensions"
            )
        zero, kind, found, *sizes = header.unpack(head)
        if (zero, kind, found) != (0, _UNSIGNED_BYTE, dimensions):
            magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions]).hex()
            raise UserError(f"{path}: the magic number is {head[:4].hex()}, expected {magic}")
        expected = math.prod(sizes)
        # One byte more than expected, so that a file that is too long is noticed.
        body = stream.read(expected + 1)
    if len(body) != expected:
        shown = "more" if len(body) > expected else f"{len(body)}"
        raise UserError(f"{path}: the sizes {sizes} promise {expected} bytes, the file has {shown}")
    return np.frombuffer(body, np.uint8).reshape(sizes)


@dataclass(frozen=True, kw_only=True)
class IdxImages(PublishedTable):
    """A data set of images in idx files.

    Args:
        sha256: the checksums of `FILES`.
    """

    sha256: tuple[str, str, str, str]

    @property
    def remotes(self) -> list[Remote]:
        sums = zip(FILES, self.sha256, strict=True)
        return [Remote(self.source + file, f"sha256:{known}") for file, known in sums]

    def read(self, root: Path) -> Dataset:
        folder = self.folder(root)
        for remote in self.remotes:
            verify(folder / remote.file, remote.checksum)
        train, test = _part(folder, "train"), _part(folder, "t10k")
        return Dataset(self.name, train, test, self.class_names)


def _part(folder: Path, prefix: str) -> LabelledRows:
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", dimensions=3)
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", dimensions=1)
    X = images.reshape(len(images), -1).astype(np.float32)
    X /= 255
    return X, labels.astype(np.int64)
