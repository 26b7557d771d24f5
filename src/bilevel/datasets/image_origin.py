"""Data sets of images by class: their properties, and their files in the data folder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bilevel.datasets.download import Remote, fetch_missing, verify
from bilevel.datasets.npz import open_npz, write_npz
from bilevel.datasets.origin import BarFor, Origin
from bilevel.errors import UserError, quoted


@dataclass(frozen=True, eq=False)
class Images:
    """The images of one split.

    Args:
        images: uint8, (N, height, width, channels).
        labels: int64, (N,), each of 0, ..., len(classes) − 1.
        classes: the meaning of labels 0, 1, ...

    Example:
        >>> import numpy as np
        >>> from bilevel.datasets import Images
        >>> pictures = Images(np.zeros((4, 2, 2, 1), np.uint8), np.array([0, 0, 0, 1]), ("a", "b"))
        >>> pictures.counts().tolist()
        [3, 1]
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def counts(self) -> NDArray[np.int64]:
        """The number of images of each class."""
        return np.bincount(self.labels, minlength=len(self.classes))


@dataclass(frozen=True, eq=False)
class ImageClasses:
    """Three splits without common classes.

    Args:
        name: as on the command line.
        train, validation, test: for learning, for choosing, for reporting.

    Example:
        >>> import numpy as np
        >>> from bilevel.datasets import ImageClasses, Images
        >>> one = [Images(np.zeros((2, 8, 8, 1), np.uint8), np.zeros(2, int), (c,)) for c in "abc"]
        >>> [part.classes for part in ImageClasses("mine", *one).splits.values()]
        [('a',), ('b',), ('c',)]
    """

    name: str
    train: Images
    validation: Images
    test: Images

    @property
    def splits(self) -> dict[str, Images]:
        return {"train": self.train, "validation": self.validation, "test": self.test}


def by_class_name(images: NDArray[np.uint8], names: Sequence[str] | NDArray[np.str_]) -> Images:
    """Images, given the class name of each; classes are sorted by name."""
    classes, labels = np.unique(np.asarray(names, str), return_inverse=True)
    return in_order(images, labels, tuple(classes.tolist()), list(range(len(classes))))


def in_order(
    images: NDArray[np.uint8], labels: NDArray[np.int64], classes: Sequence[str], chosen: list[int]
) -> Images:
    """The images of the chosen classes, class by class; within a class, the order is kept.

    Args:
        images, labels, classes: all of them.
        chosen: the labels to take; the i-th of them becomes label i.

    Example:
        >>> import numpy as np
        >>> from bilevel.datasets.image_origin import in_order
        >>> pixels = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)
        >>> part = in_order(pixels, np.array([2, 1, 0, 2]), ("a", "b", "c"), [2, 0])
        >>> part.images.ravel().tolist(), part.labels.tolist(), part.classes
        ([0, 3, 2], [0, 0, 1], ('c', 'a'))
    """
    new = np.full(len(classes), len(chosen))
    new[chosen] = np.arange(len(chosen))
    relabelled = new[labels]
    order = np.argsort(relabelled, kind="stable")[: int((relabelled < len(chosen)).sum())]
    if not np.array_equal(order, np.arange(len(labels))):  # a copy can be a gigabyte
        images = images[order]
    return Images(images, relabelled[order].astype(np.int64), tuple(classes[i] for i in chosen))


@dataclass(frozen=True, kw_only=True)
class ImageOrigin(Origin[ImageClasses]):
    """A data set of images by class.

    Its files are made once from what is published, and stored in the data folder as .npz files of
    three arrays: images, uint8 (N, height, width, channels); labels, int64 (N,); classes, text.

    Args:
        classes: how many there are in each of train, validation and test.
        shape: height, width and channels of an image.
        images_a_class: as published.
        fewest_a_class: files with fewer images of some class are refused.
        archives: the downloads that the files are made from.

    Example:
        >>> from bilevel.datasets import catalogue
        >>> origin = catalogue()["omniglot"]
        >>> origin.shape, origin.loader
        ((28, 28, 1), 'load_images')
    """

    kind: ClassVar[str] = "images by class, for few-shot learning"
    loader: ClassVar[str] = "load_images"

    classes: Mapping[str, int]
    shape: tuple[int, int, int]
    images_a_class: int
    fewest_a_class: int
    archives: tuple[Remote, ...] = ()

    def stored(self) -> Mapping[str, int]:
        """The stems of its .npz files, and the number of classes in each: one for each split."""
        return self.classes

    def read(self, root: Path) -> ImageClasses:
        return ImageClasses(self.name, *(self._part(path) for path in self.files(root)))

    @abstractmethod
    def convert(
        self, folder: Path, stems: Sequence[str], progress: BarFor | None
    ) -> Iterator[Images]:
        """Make the content of these files from what is published, in this order."""

    def files(self, root: Path) -> list[Path]:
        folder = root / self.name.replace("-", "_")
        return [folder / f"{stem}.npz" for stem in self.stored()]

    def facts(self, root: Path) -> dict[str, str]:
        return {
            " / ".join(self.classes) + " classes": " / ".join(map(str, self.classes.values())),
            "images per class": self._held(root),
            "pixels": "×".join(map(str, self.shape)),
        }

    def download(self, root: Path, progress: BarFor | None) -> None:
        folder, missing = self.folder(root), self.missing(root)
        fetched = fetch_missing(self.name, folder, self.archives, progress)
        for archive in self.archives:
            verify(folder / archive.file, archive.checksum)
        stems = [path.stem for path in missing]
        made = zip(stems, self.convert(folder, stems, progress), strict=True)
        write_npz(missing, (self._arrays(folder, stem, part) for stem, part in made))
        for archive_file in fetched:  # but not one that the user put there
            archive_file.unlink()

    def check(self, root: Path, data: ImageClasses) -> None:
        for split, part in data.splits.items():
            self._expect(root, f"{split} classes", len(part.classes), self.classes[split])
        names = [name for part in data.splits.values() for name in part.classes]
        twice = sorted({name for name in names if names.count(name) > 1})
        self._expect(root, "classes that occur twice", twice[:5], [])

    def _part(self, path: Path) -> Images:
        """The content of one of its files, checked."""
        with open_npz(path, self.name) as arrays:
            classes = arrays["classes"]
            if classes.ndim != 1 or classes.dtype.kind != "U":
                raise ValueError(f"classes is {classes.dtype} of shape {classes.shape}, not text")
            part = Images(arrays["images"], arrays["labels"], tuple(classes.tolist()))
        if fault := self._fault(path.stem, part):
            raise UserError(f"{path}: {fault}. Delete it and run `bilevel data get {self.name}`.")
        return part

    def _arrays(self, folder: Path, stem: str, part: Images) -> dict[str, NDArray[Any]]:
        """What to write, unless it would be refused on reading."""
        if fault := self._fault(stem, part):
            raise UserError(
                f"{self.name}: {stem}.npz was not made: {fault}. The files in {folder} are not "
                f"the published ones, or not all of them."
            )
        return {"images": part.images, "labels": part.labels, "classes": np.array(part.classes)}

    def _fault(self, stem: str, part: Images) -> str | None:
        """What is wrong with the content of a file, if anything."""
        images, labels, classes = part.images, part.labels, len(part.classes)
        for what, found, expected in (
            ("type of the images", images.dtype.name, "uint8"),
            ("type of the labels", labels.dtype.name, "int64"),
            ("shape of an image", images.shape[1:], self.shape),
            ("shape of the labels", labels.shape, images.shape[:1]),
            ("number of classes", classes, self.stored()[stem]),
        ):
            if found != expected:
                return f"the {what} is {found}, expected {expected}"
        outside = labels[(labels < 0) | (labels >= classes)]
        if outside.size:
            return f"labels {outside[:5].tolist()} are not among 0, ..., {classes - 1}"
        counts = part.counts()
        if counts.min() < self.fewest_a_class:
            few = part.classes[int(counts.argmin())]
            least = self.fewest_a_class
            return f"class {quoted(few)} has {counts.min()} images, expected {least} or more"
        return None

    def _held(self, root: Path) -> str:
        """The number of images per class: in the files if they are present, else as published."""
        if self.missing(root):
            return f"{self.images_a_class:,}"
        try:
            parts = [self._counts(path) for path in self.files(root)]
        except (UserError, OSError):
            return "damaged"
        ends = {min(map(min, parts)), max(map(max, parts))}
        return "–".join(f"{count:,}" for count in sorted(ends))

    def _counts(self, path: Path) -> list[int]:
        with open_npz(path, self.name) as arrays:
            return [int(count) for count in np.bincount(arrays["labels"], minlength=1)]
