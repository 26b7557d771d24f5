"""Pictures of the user's own to train on: a folder with a folder for each class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bilevel.apps.few_shot.picture_folders import Reader, look_into
from bilevel.datasets import ImageClasses, Images
from bilevel.errors import UserError

SIZE = 32  # pixels, unless another is asked for
_FEWEST = 6  # classes: two for each split
_SHARE = 5  # one class in so many is for validation, and another for the test


@dataclass(frozen=True)
class OwnPictures:
    """What `ImageOrigin` is for published images: which classes there are, before they are read.

    Which class goes where is drawn from the names alone: the same folder is split alike in
    every training and evaluation.

    Args:
        folder: with folders of pictures.
        size: height and width that they are brought to.
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
        """How many there are in each split."""
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
