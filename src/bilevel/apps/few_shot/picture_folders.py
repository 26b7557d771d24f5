"""The user's own pictures: a folder with a subfolder for each class."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from bilevel.datasets import ImageClasses, Images
from bilevel.datasets.pictures import opened
from bilevel.durable.regular import check_regular
from bilevel.errors import UserError, refusing

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_MOST_BYTES = 2**28  # of a file: more than the most pixels take uncompressed
_THUMBNAIL = (96, 96)
_DEEP = ("I", "F")  # Pillow's modes of more than 8 bits a channel begin so
SIZE = 32  # pixels, by default
_FEWEST = 6  # classes: two for each split
_SHARE = 5  # one class in this many is for validation, and another for the test


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture, for the model and for the reader.

    Args:
        file: its path.
        name: to show.
        size: width and height in the file.
        pixels: uint8, (height, width, channels) of the model.
        thumbnail: a small Pillow image.
        digest: equal for files with the same content.
    """

    file: Path
    name: str
    size: tuple[int, int]
    pixels: NDArray[np.uint8]
    thumbnail: Any
    digest: bytes


@dataclass(frozen=True)
class Reader:
    """Opens pictures.

    Args:
        shape: channels, height and width that the model needs.
        invert: swap black and white.
    """

    shape: tuple[int, int, int]
    invert: bool = False

    def read(self, file: Path, name: str) -> Picture:
        """Read a picture; UserError with the file's name unless it is a single intact one."""
        channels, height, width = self.shape
        check_regular(file, _MOST_BYTES)
        with refusing(f"{file} cannot be read", OSError):
            raw = file.read_bytes()
        with opened(raw, str(file)) as image:
            picture = _upright(file, image)
        size = picture.size
        seen = picture.convert("L" if channels == 1 else "RGB")
        seen = ImageOps.invert(seen) if self.invert else seen
        if seen.size != (width, height):
            seen = seen.resize((width, height), Image.Resampling.LANCZOS)
        pixels = np.asarray(seen).reshape(height, width, channels)
        picture.thumbnail(_THUMBNAIL)
        return Picture(file, name, size, pixels, picture, hashlib.sha256(raw).digest())


def _upright(file: Path, image: Image.Image) -> Image.Image:
    """An RGB or grey picture, rotated upright, with transparency on white."""
    # Phones append a second picture to the first one (MPO), which is not an animation.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise UserError(f"{file} holds several pictures: save one of them in a file of its own")
    if image.mode.startswith(_DEEP):
        raise UserError(f"{file} has more than 8 bits a channel ({image.mode}): save it with 8")
    upright = ImageOps.exif_transpose(image)
    if "A" in upright.getbands() or "transparency" in upright.info:
        over = upright.convert("RGBA")
        ground = Image.new("RGBA", over.size, "white")
        return Image.alpha_composite(ground, over).convert("RGB")
    return upright.convert("L" if upright.mode in ("1", "L") else "RGB")


@dataclass(frozen=True)
class Listing:
    """The files of a folder: pictures by class, pictures in no class, and skipped files."""

    classes: dict[str, list[Path]]
    loose: list[Path]
    ignored: list[Path]


def look_into(folder: Path) -> Listing:
    """The pictures in a folder and its subfolders, recognised by suffix, sorted by name."""
    if not folder.exists():
        raise UserError(f"there is no folder {folder}")
    if not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder of pictures")
    with refusing(f"cannot read {folder}", OSError):
        loose, others = _pictures(folder)
        classes, ignored = {}, [path for path in others if not path.is_dir()]
        for inside in filter(Path.is_dir, others):
            classes[inside.name], rest = _pictures(inside)
            ignored += rest
    return Listing(classes, loose, ignored)


def _pictures(folder: Path) -> tuple[list[Path], list[Path]]:
    """The pictures, and all other entries that are not hidden."""
    shown = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    found = [path for path in shown if path.suffix.lower() in SUFFIXES and not path.is_dir()]
    return found, [path for path in shown if path not in set(found)]


def check_sizes(pictures: Sequence[Picture]) -> None:
    """Refuse pictures of different sizes: one of them may be there by mistake."""
    first = pictures[0]
    for other in pictures:
        if other.size != first.size:
            raise UserError(
                f"the pictures have different sizes: {first.file} has {_times(first.size)} "
                f"pixels, {other.file} has {_times(other.size)}; use --resize if that is intended"
            )


def size_notes(pictures: Sequence[Picture], shape: tuple[int, int, int]) -> Iterator[str]:
    """Notes on how pictures were changed to fit the model."""
    channels, height, width = shape
    other = [picture for picture in pictures if picture.size != (width, height)]
    if other:
        yield (
            f"{len(other):,} of {len(pictures):,} pictures were resized to {width}×{height}, "
            "the model's size, whatever their proportions"
        )
    if channels == 1 and any(picture.thumbnail.mode != "L" for picture in pictures):
        yield "the model sees only grey: colours were removed"


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


@dataclass(frozen=True)
class OwnPictures:
    """The counterpart of `ImageOrigin` for the user's pictures: its classes, before they are read.

    The split is drawn from the names of the classes alone: the same folder is split alike in every
    training and evaluation.

    Args:
        folder: with folders of pictures.
        size: the height and width that they are resized to.
    """

    folder: Path
    size: int = SIZE

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.size, self.size, 3

    @property
    def classes(self) -> dict[str, int]:
        """The number of classes in each split."""
        return {split: len(names) for split, names in self._splits.items()}

    def load(self) -> ImageClasses:
        """Read all pictures."""
        return ImageClasses(self.name, *(self._read(names) for names in self._splits.values()))

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        found = {name: files for name, files in look_into(self.folder).classes.items() if files}
        if len(found) < _FEWEST:
            raise UserError(
                f"{self.folder} has {len(found)} folders with pictures; at least {_FEWEST} classes "
                "are needed, because training, validation and test share none"
            )
        return found

    @cached_property
    def _splits(self) -> dict[str, list[str]]:
        names = sorted(self._files)
        order = [names[i] for i in np.random.default_rng(0).permutation(len(names))]
        held = max(2, len(names) // _SHARE)
        parts = {"train": order[2 * held :], "validation": order[held : 2 * held]}
        return {**parts, "test": order[:held]}

    def _read(self, names: list[str]) -> Images:
        reader = Reader((3, self.size, self.size))
        files = [(file, label) for label, name in enumerate(names) for file in self._files[name]]
        pixels = np.stack([reader.read(file, file.name).pixels for file, _ in files])
        return Images(pixels, np.array([label for _, label in files], np.int64), tuple(names))
