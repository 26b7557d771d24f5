"""mini-ImageNet: 100 classes of ImageNet (Vinyals et al., 2016), split by Ravi & Larochelle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bilevel.datasets.image_listing import read_listed_images
from bilevel.datasets.image_origin import FileForEachSplit
from bilevel.datasets.image_pickle import read_image_pickle
from bilevel.datasets.images import Images
from bilevel.datasets.origin import BarFor
from bilevel.errors import UserError

# What the files of a split are called where mini-ImageNet is passed on: a word for the pickles of
# Ren et al. and for the list, and one for the pickles of Gidaris & Komodakis.
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
Then run `bilevel data get {name}`. From what is there now, {missing} cannot be made."""


@dataclass(frozen=True, kw_only=True)
class MiniImageNet(FileForEachSplit):
    """What the user obtained, laid out like the other data sets.

    Each split is made from a pickle where there is one, else from the list and the folder
    `images`, whose pictures are squeezed to 84×84 by Pillow's LANCZOS filter. Classes are in
    order of their names.

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
        """What makes a split, if it can be made."""
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
