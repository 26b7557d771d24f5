"""Omniglot: 1,623 characters of 50 alphabets, 20 drawings each (Lake et al., Science 2015)."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from bilevel.datasets.download import Remote
from bilevel.datasets.extras import extra
from bilevel.datasets.image_origin import ImageClasses, ImageOrigin, Images, by_class_name, in_order
from bilevel.datasets.origin import BarFor, advancing
from bilevel.datasets.pictures import picture
from bilevel.errors import UserError, refusing

_SITE = "https://github.com/brendenlake/omniglot"
_FILES = f"{_SITE}/raw/master/python/"
# As in TensorFlow Datasets; the authors publish none.
_BACKGROUND = "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640"
_EVALUATION = "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee"
_DRAWN = (105, 105)
_LARGEST = 100_000  # bytes of one drawing; they have some hundreds


@dataclass(frozen=True, kw_only=True)
class Omniglot(ImageOrigin):
    """Its authors' two sets: `background`, to learn from, and `evaluation`, to test on.

    Every sixth alphabet of `background`, sorted by name, is used for validation: Balinese,
    Early_Aramaic, Inuktitut, Mkhedruli and Tifinagh, 158 characters. So no alphabet is in two
    splits. Characters are sorted by alphabet and number, drawings by file name. A drawing is
    reduced from 105×105 to 28×28 by averaging over boxes; ink is 255.

    Args:
        validation_every: one of this many alphabets of `background` is for validation.
    """

    validation_every: int = 6

    def stored(self) -> Mapping[str, int]:
        background = self.classes["train"] + self.classes["validation"]
        return {"train": background, "test": self.classes["test"]}

    def read(self, root: Path) -> ImageClasses:
        background, evaluation = (self._part(path) for path in self.files(root))
        train, validation = self._divide(background)
        return ImageClasses(self.name, train, validation, evaluation)

    def convert(
        self, folder: Path, stems: Sequence[str], progress: BarFor | None
    ) -> Iterator[Images]:
        archives = dict(zip(self.stored(), self.archives, strict=True))
        for stem in stems:
            path = folder / archives[stem].file
            with refusing(f"{path} is not a complete zip file", zipfile.BadZipFile, zlib.error):
                yield self._drawings(path, f"{stem}.npz", progress)

    def _divide(self, background: Images) -> tuple[Images, Images]:
        alphabets = [name.partition("/")[0] for name in background.classes]
        held_out = sorted(set(alphabets))[self.validation_every - 1 :: self.validation_every]
        train = [i for i, alphabet in enumerate(alphabets) if alphabet not in held_out]
        validation = [i for i, alphabet in enumerate(alphabets) if alphabet in held_out]
        parts = background.images, background.labels, background.classes
        return in_order(*parts, train), in_order(*parts, validation)

    def _drawings(self, path: Path, file: str, progress: BarFor | None) -> Images:
        with zipfile.ZipFile(path) as archive:
            members = sorted(filter(_is_drawing, archive.infolist()), key=lambda m: m.filename)
            images = np.empty((len(members), *self.shape), np.uint8)
            with advancing(progress, file, images.nbytes) as advance:
                for image, member in zip(images, members, strict=True):
                    image[..., 0] = self._shrunk(path, archive, member)
                    advance(image.nbytes)
        names = ["/".join(PurePosixPath(member.filename).parts[1:3]) for member in members]
        return by_class_name(images, names)

    def _shrunk(
        self, path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo
    ) -> NDArray[np.uint8]:
        what = f"{path}: {member.filename}"
        if member.file_size > _LARGEST:
            raise UserError(f"{what} has {member.file_size} bytes, too many for a drawing")
        drawing = picture(archive.read(member), what, "L")
        if drawing.size != _DRAWN:
            raise UserError(f"{what} has the size {drawing.size}, expected {_DRAWN}")
        ink = extra("PIL.ImageOps").invert(drawing)  # black on white as published
        height, width, _ = self.shape
        return np.asarray(ink.resize((width, height), extra("PIL.Image").Resampling.BOX))


def _is_drawing(member: zipfile.ZipInfo) -> bool:
    """images_background/ALPHABET/characterNN/NNNN_NN.png, or the same of images_evaluation."""
    path = PurePosixPath(member.filename)
    return path.match("images_*/*/character*/*.png") and len(path.parts) == 4


omniglot = Omniglot(
    name="omniglot",
    classes={"train": 806, "validation": 158, "test": 659},
    shape=(28, 28, 1),
    images_a_class=20,
    fewest_a_class=20,
    source=_SITE,
    licence="MIT",
    download_bytes=15_927_098,
    archives=(
        Remote(_FILES + "images_background.zip", f"sha256:{_BACKGROUND}"),
        Remote(_FILES + "images_evaluation.zip", f"sha256:{_EVALUATION}"),
    ),
)
