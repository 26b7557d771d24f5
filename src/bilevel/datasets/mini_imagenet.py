"""mini-ImageNet: 100 classes of ImageNet (Vinyals et al., 2016), split by Ravi & Larochelle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bilevel.datasets.image_listing import read_listed_images
from bilevel.datasets.image_origin import ImageOrigin
from bilevel.datasets.image_pickle import read_image_pickle
from bilevel.datasets.images import ImageClasses, Images
from bilevel.datasets.origin import Progress
from bilevel.errors import UserError


@dataclass(frozen=True)
class _Names:
    """How the files of one split are called where mini-ImageNet is passed on."""

    pickles: tuple[str, str]
    listing: str


_FILES = {
    "train": _Names(
        ("mini-imagenet-cache-train.pkl", "miniImageNet_category_split_train_phase_train.pickle"),
        "train.csv",
    ),
    "validation": _Names(
        ("mini-imagenet-cache-val.pkl", "miniImageNet_category_split_val.pickle"),
        "val.csv",
    ),
    "test": _Names(
        ("mini-imagenet-cache-test.pkl", "miniImageNet_category_split_test.pickle"),
        "test.csv",
    ),
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
class MiniImageNet(ImageOrigin):
    """What the user obtained, laid out like the other data sets.

    Each split is made from a pickle where there is one, else from the list and the folder
    `images`, whose pictures are squeezed to 84×84 by Pillow's LANCZOS filter. Classes are in
    order of their names.

    Reference: Ravi & Larochelle, "Optimization as a model for few-shot learning", ICLR 2017.
    """

    def stored(self) -> Mapping[str, int]:
        return self.classes

    def read(self, root: Path) -> ImageClasses:
        return ImageClasses(self.name, *(self._part(path) for path in self.files(root)))

    def convert(
        self, folder: Path, stems: Sequence[str], progress: Progress | None
    ) -> Iterator[Images]:
        sources = {stem: self._source(folder, _FILES[stem], progress) for stem in stems}
        lacking = [stem for stem, source in sources.items() if source is None]
        if lacking:
            raise UserError(self._advice(folder, lacking))
        return (source() for source in sources.values() if source is not None)

    def _source(
        self, folder: Path, names: _Names, progress: Progress | None
    ) -> Callable[[], Images] | None:
        """What makes a split, if it can be made."""
        for file in names.pickles:
            if (folder / file).is_file():
                return partial(read_image_pickle, folder / file, progress)
        listing, pictures = folder / names.listing, folder / "images"
        if listing.is_file() and pictures.is_dir():
            return partial(read_listed_images, listing, pictures, self.shape, progress)
        return None

    def _advice(self, folder: Path, lacking: Sequence[str]) -> str:
        first, second = (", ".join(names.pickles[i] for names in _FILES.values()) for i in (0, 1))
        return _ADVICE.format(
            name=self.name,
            folder=folder,
            first=first,
            second=second,
            listings=", ".join(names.listing for names in _FILES.values()),
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
