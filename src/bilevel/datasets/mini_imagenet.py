"""mini-ImageNet: 100 classes of ImageNet (Vinyals et al., 2016), split by Ravi & Larochelle."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilevel.datasets.array_pickle import MISFITS, load_arrays, text
from bilevel.datasets.extras import extra
from bilevel.datasets.image_origin import ImageOrigin, Images, by_class_name
from bilevel.datasets.origin import BarFor, advancing
from bilevel.datasets.pictures import picture
from bilevel.errors import UserError, quoted, refusing

_NO_LIST = KeyError, csv.Error, UnicodeDecodeError


def read_listing(listing: Path) -> list[tuple[str, str]]:
    """The (filename, label) of each line of a csv file with these two columns."""
    with (
        refusing(f"{listing} is not a csv file with the columns filename and label", *_NO_LIST),
        listing.open(newline="", encoding="utf-8") as stream,
    ):
        table = csv.DictReader(stream, skipinitialspace=True)
        rows = [(row["filename"], row["label"]) for row in table]
    for line, (file, label) in enumerate(rows, start=2):
        if not file or not label or Path(file).name != file:
            raise UserError(
                f"{listing}, line {line}: expected the name of a file and its class, "
                f"found {quoted(file)} and {quoted(label)}"
            )
    return rows


def read_listed_images(
    listing: Path, folder: Path, shape: tuple[int, int, int], progress: BarFor | None
) -> Images:
    """The listed images of a folder, resized by Pillow's LANCZOS filter.

    Classes are sorted by name; the images of a class keep the order of the list.

    Args:
        listing: the csv file.
        folder: of the images.
        shape: height, width, and 3 channels.
        progress: makes a progress bar from the list's name.
    """
    rows = read_listing(listing)
    images = np.empty((len(rows), *shape), np.uint8)
    with advancing(progress, listing.name, images.nbytes) as advance:
        for image, (file, _) in zip(images, rows, strict=True):
            image[...] = _squeezed(folder / file, shape)
            advance(image.nbytes)
    return by_class_name(images, [label for _, label in rows])


def _squeezed(path: Path, shape: tuple[int, int, int]) -> Any:
    if not path.is_file():
        raise UserError(f"{path} is missing, but listed")
    height, width, _ = shape
    lanczos = extra("PIL.Image").Resampling.LANCZOS
    return picture(path.read_bytes(), str(path), "RGB").resize((width, height), lanczos)


def read_image_pickle(path: Path, progress: BarFor | None = None) -> Images:
    """Read a pickled dict of images, uint8 (N, height, width, channels), in either layout.

    - `image_data`, and `class_dict`: the indices of each class's images, by the class's name
      (Ren et al., 2018);
    - `data`, and `labels`: a number for each image; with `catname2label`, where it is, the names
      of the classes (Gidaris & Komodakis, 2018).

    Classes are sorted by name; the images of a class keep the order of the file.
    """
    size = path.stat().st_size
    with advancing(progress, path.name, size) as advance, path.open("rb") as stream:
        entries = load_arrays(stream, str(path))
        advance(size)
    advice = (
        "; expected are the entries image_data and class_dict, or data and labels, and found are "
        f"{', '.join(entries) or 'none'}"
    )
    with refusing(f"{path} has another layout", *MISFITS, advice=advice):
        if "image_data" in entries:
            images, names = np.asarray(entries["image_data"]), _by_index(entries)
        else:
            images, names = np.asarray(entries["data"]), _by_label(entries, path.stem)
    if images.shape[:1] != names.shape:
        raise UserError(f"{path} has {len(images)} images, but classes for {len(names)}")
    return by_class_name(images, names)


def _by_index(entries: Mapping[str, Any]) -> NDArray[np.str_]:
    """The class of each image, from the indices of each class."""
    members = {text(name): np.asarray(rows) for name, rows in entries["class_dict"].items()}
    names = np.repeat(list(members), [len(rows) for rows in members.values()])
    rows = np.concatenate(list(members.values()))
    if not np.array_equal(np.sort(rows), np.arange(len(rows))):
        raise ValueError("class_dict does not have each image once")
    return names[np.argsort(rows)]


def _by_label(entries: Mapping[str, Any], stem: str) -> NDArray[np.str_]:
    """The class of each image, from its number; without names, the file's name and the number."""
    known = {int(label): text(name) for name, label in entries.get("catname2label", {}).items()}
    labels = np.asarray(entries["labels"], np.int64)
    numbers, places = np.unique(labels, return_inverse=True)
    names = [known.get(number, f"{stem} {number:03d}") for number in numbers.tolist()]
    return np.array(names, str)[places]


# The names of the files of each split, as mini-ImageNet is passed on: a word for the pickles of Ren
# et al. and for the list, and one for the pickles of Gidaris & Komodakis.
_WORDS = {
    "train": ("train", "train_phase_train"),
    "validation": ("val",) * 2,
    "test": ("test",) * 2,
}
_FIRST, _SECOND = "mini-imagenet-cache-{}.pkl", "miniImageNet_category_split_{}.pickle"
_FILES = {
    split: (_FIRST.format(word), _SECOND.format(other), f"{word}.csv")
    for split, (word, other) in _WORDS.items()
}
_ADVICE = """\
{name} cannot be downloaded freely: its images are ImageNet's, for research that is not commercial
(https://image-net.org/download). Obtain one of these, and put it into
  {folder}
- the pickles {first}
  as Ren et al. made them (https://github.com/renmengye/few-shot-ssl-public)
- the pickles {second}
  as Gidaris & Komodakis made them (https://github.com/gidariss/FewShotWithoutForgetting)
- a folder `images` of the 60,000 pictures, and Ravi & Larochelle's lists of them by class:
  {listings}, with the columns filename and label
  (https://github.com/twitter-research/meta-learning-lstm)
Then run `bilevel data get {name}`. With what is there now, {missing} cannot be made."""


@dataclass(frozen=True, kw_only=True)
class MiniImageNet(ImageOrigin):
    """Files that the user obtained, converted to the layout of the other data sets.

    Each split is made from a pickle if there is one, else from the list and the folder `images`,
    whose pictures are resized to 84×84 by Pillow's LANCZOS filter. Classes are sorted by name.

    Reference: Ravi & Larochelle, "Optimization as a model for few-shot learning", ICLR 2017.
    """

    def convert(
        self, folder: Path, stems: Sequence[str], progress: BarFor | None
    ) -> Iterator[Images]:
        sources = {stem: self._source(folder, _FILES[stem], progress) for stem in stems}
        lacking = [stem for stem, source in sources.items() if source is None]
        if lacking:
            raise UserError(self._advice(folder, lacking))
        return (source() for source in sources.values() if source is not None)

    def _source(
        self, folder: Path, files: Sequence[str], progress: BarFor | None
    ) -> Callable[[], Images] | None:
        """A function that makes a split, if it can be made."""
        *pickles, listing, pictures = (folder / file for file in (*files, "images"))
        for pickle in pickles:
            if pickle.is_file():
                return partial(read_image_pickle, pickle, progress)
        if listing.is_file() and pictures.is_dir():
            return partial(read_listed_images, listing, pictures, self.shape, progress)
        return None

    def _advice(self, folder: Path, lacking: Sequence[str]) -> str:
        first, second, listings = (", ".join(files) for files in zip(*_FILES.values(), strict=True))
        return _ADVICE.format(
            name=self.name,
            folder=folder,
            first=first,
            second=second,
            listings=listings,
            missing=", ".join(f"{stem}.npz" for stem in lacking),
        )


mini_imagenet = MiniImageNet(
    name="mini-imagenet",
    classes={"train": 64, "validation": 16, "test": 20},
    shape=(84, 84, 3),
    images_a_class=600,
    fewest_a_class=20,  # five to learn from and fifteen to ask about; some have 100 of the 600
    source="https://image-net.org, by whoever obtained it",
    licence="ImageNet's terms: research that is not commercial",
    download_bytes=0,
)
