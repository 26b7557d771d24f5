"""Training on pictures of one's own, and the model that comes along."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bilevel.apps.few_shot.checkpoint import SHIPPED, load, save
from bilevel.apps.few_shot.picture_folders import OwnPictures
from bilevel.apps.few_shot.settings import image_set
from bilevel.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for k in range(11):
        place = tmp_path / "own" / f"class {k}"
        place.mkdir(parents=True)
        for i in range(3):
            Image.new("RGB", (20, 30), (20 * k, 10 * i, 0)).save(place / f"{i}.png")
    return tmp_path / "own"


def test_classes_are_split_without_overlap_and_alike_every_time(folder):
    origin = image_set(str(folder), size=16)
    assert isinstance(origin, OwnPictures)
    assert origin.classes == {"train": 7, "validation": 2, "test": 2}
    data, again = origin.load(), OwnPictures(folder, 16).load()
    parts = (data.train, data.validation, data.test)
    assert len({name for part in parts for name in part.classes}) == 11
    assert data.test.classes == again.test.classes
    for part in parts:
        assert part.images.shape[1:] == origin.shape == (16, 16, 3)
        reds = [int(name.split()[1]) * 20 for name in part.classes]
        assert np.array_equal(part.images[:, 8, 8, 0], np.repeat(reds, 3))


def test_too_few_classes_and_unknown_names_are_refused(folder, tmp_path):
    few = tmp_path / "few"
    for name in ("a", "b"):
        (few / name).mkdir(parents=True)
        Image.new("RGB", (16, 16)).save(few / name / "1.png")
    with pytest.raises(UserError, match="2 folders with pictures; at least 6"):
        OwnPictures(few).load()
    with pytest.raises(UserError, match="no such folder"):
        image_set("nowhere")


def test_the_shipped_model_is_small_and_a_file_of_arrays_is_read_as_written(tmp_path):
    model = load(SHIPPED)
    assert SHIPPED.stat().st_size <= 2_000_000
    assert model.settings.data == "fc100"
    assert model.settings.ways == 5
    save(tmp_path / "copy.npz", model)
    again = load(tmp_path / "copy.npz")
    assert again.settings == model.settings
    assert again.x.equal(model.x)
