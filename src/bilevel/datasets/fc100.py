"""FC100: CIFAR-100's images, split by superclass (Oreshkin, Rodríguez López & Lacoste, 2018)."""

from __future__ import annotations

import math
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from bilevel.datasets.array_pickle import MISFITS, load_arrays, text
from bilevel.datasets.download import NOT_GZIP, Remote
from bilevel.datasets.image_origin import ImageOrigin, Images, in_order
from bilevel.datasets.origin import BarFor, advancing
from bilevel.errors import UserError, refusing

_SITE = "https://www.cs.toronto.edu/~kriz/"
_SHA256 = "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"  # as in Keras
_SUPERCLASSES = {
    "train": """
        fish flowers food_containers fruit_and_vegetables household_electrical_devices
        household_furniture large_man-made_outdoor_things large_natural_outdoor_scenes reptiles
        trees vehicles_1 vehicles_2
    """,
    "validation": """
        large_carnivores large_omnivores_and_herbivores non-insect_invertebrates small_mammals
    """,
    "test": "aquatic_mammals insects medium_mammals people",
}
_LARGEST = 200_000_000  # bytes of a member; the largest has 155,249,918


@dataclass(frozen=True, kw_only=True)
class FC100(ImageOrigin):
    """All 60,000 images of CIFAR-100, in splits that share no superclass.

    Classes are in the order of CIFAR-100's labels, which is that of their names. The images of a
    class are the 500 of the file `train`, then the 100 of the file `test`, in their order there.

    Reference: Oreshkin, Rodríguez López & Lacoste, "TADAM", NeurIPS 2018, supplement.

    Args:
        superclasses: of train, validation and test.
    """

    superclasses: Mapping[str, tuple[str, ...]]

    def convert(
        self, folder: Path, stems: Sequence[str], progress: BarFor | None
    ) -> Iterator[Images]:
        path = folder / self.archives[0].file
        size = sum(self.classes.values()) * self.images_a_class * math.prod(self.shape)
        with (
            refusing(f"{path} is not CIFAR-100's archive", tarfile.TarError, *NOT_GZIP, *MISFITS),
            advancing(progress, path.name, size) as advance,
        ):
            pooled, superclasses = self._pooled(_members(path, advance))
        for stem in stems:
            chosen = [i for i, name in enumerate(superclasses) if name in self.superclasses[stem]]
            yield in_order(pooled.images, pooled.labels, pooled.classes, chosen)

    def _pooled(self, members: Mapping[str, Mapping[str, Any]]) -> tuple[Images, list[str]]:
        """All images, and the superclass of each of the classes."""
        height, width, channels = self.shape
        files = (members["train"], members["test"])
        pixels = np.concatenate([np.asarray(file["data"]) for file in files])
        images = pixels.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        labels, coarse = (
            np.concatenate([np.asarray(file[key], np.int64) for file in files])
            for key in ("fine_labels", "coarse_labels")
        )
        classes = tuple(map(text, members["meta"]["fine_label_names"]))
        coarse_names = tuple(map(text, members["meta"]["coarse_label_names"]))
        if len(images) != len(labels) or not np.isin(labels, np.arange(len(classes))).all():
            raise ValueError(f"{len(images)} images and {len(labels)} labels up to {labels.max()}")
        superclass_of = dict(zip(labels.tolist(), coarse.tolist(), strict=True))
        superclasses = [coarse_names[superclass_of[label]] for label in range(len(classes))]
        return Images(images, labels, classes), superclasses


def _members(path: Path, advance: Callable[[int], None]) -> dict[str, dict[str, Any]]:
    """The three pickles of the archive, in one pass: going back would unpack it again."""
    wanted = {f"cifar-100-python/{name}": name for name in ("train", "test", "meta")}
    found = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            if member.name in wanted and member.isreg():
                what = f"{path}: {member.name}"
                if member.size > _LARGEST:
                    raise UserError(f"{what} has {member.size} bytes, more than CIFAR-100's")
                stream = archive.extractfile(member)
                assert stream is not None  # of a regular file it never is
                found[wanted[member.name]] = load_arrays(cast(BinaryIO, stream), what)
                advance(member.size)
    missing = sorted(set(wanted.values()) - set(found))
    if missing:
        raise UserError(f"{path} has no file {', '.join(missing)} in cifar-100-python")
    return found


fc100 = FC100(
    name="fc100",
    classes={"train": 60, "validation": 20, "test": 20},
    shape=(32, 32, 3),
    images_a_class=600,
    fewest_a_class=600,
    superclasses={split: tuple(names.split()) for split, names in _SUPERCLASSES.items()},
    source=_SITE + "cifar.html",
    licence="none stated",
    download_bytes=169_001_437,
    archives=(Remote(_SITE + "cifar-100-python.tar.gz", _SHA256),),
)
