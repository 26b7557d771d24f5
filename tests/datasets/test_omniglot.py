"""Omniglot, from zips in its format that the tests make."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bilevel.datasets import load_images
from bilevel.datasets.download import Remote
from bilevel.datasets.omniglot import Omniglot, omniglot
from bilevel.errors import UserError

BACKGROUND, EVALUATION = "images_background.zip", "images_evaluation.zip"
ALPHABETS = {
    BACKGROUND: {"Armenian": 2, "Braille": 3, "Cyrillic": 1, "Futurama": 2},
    EVALUATION: {"Angelic": 2, "Keble": 1},
}
DRAWINGS = 3


def ink(file: str, alphabet: str, character: int, drawing: int) -> NDArray[np.bool_]:
    """A drawing: a blob of ink that depends on who, what and where."""
    seed = [ord(file[7]), *alphabet.encode(), character, drawing]
    small = np.random.default_rng(seed).random((15, 15)) < 0.2
    return np.kron(small, np.ones((7, 7), bool))


def png(drawn: NDArray[np.bool_]) -> bytes:
    """Black on white with one bit a pixel, as published."""
    stream = io.BytesIO()
    Image.fromarray(np.where(drawn, 0, 255).astype(np.uint8)).convert("1").save(stream, "PNG")
    return stream.getvalue()


def members(file: str) -> dict[str, bytes]:
    folder = file.removesuffix(".zip")
    return {
        f"{folder}/{alphabet}/character{character:02d}/{character:04d}_{drawing:02d}.png": png(
            ink(file, alphabet, character, drawing)
        )
        for alphabet, characters in ALPHABETS[file].items()
        for character in range(1, characters + 1)
        for drawing in range(1, DRAWINGS + 1)
    }


def pack(content: dict[str, bytes]) -> bytes:
    """A zip, whose members are in no order."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in sorted(content, key=lambda name: hashlib.sha256(name.encode()).digest()):
            archive.writestr(name, content[name])
    return stream.getvalue()


def put(root: Path, background: bytes, evaluation: bytes) -> Omniglot:
    (root / "omniglot").mkdir(exist_ok=True)
    remotes = []
    for file, raw in ((BACKGROUND, background), (EVALUATION, evaluation)):
        (root / "omniglot" / file).write_bytes(raw)
        remotes.append(Remote(f"http://127.0.0.1:9/{file}", f"md5:{hashlib.md5(raw).hexdigest()}"))
    return dataclasses.replace(
        omniglot,
        classes={"train": 3, "validation": 5, "test": 3},
        images_a_class=DRAWINGS,
        fewest_a_class=DRAWINGS,
        archives=tuple(remotes),
        validation_every=2,
    )


def tiny(root: Path) -> Omniglot:
    return put(root, pack(members(BACKGROUND)), pack(members(EVALUATION)))


def held(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "omniglot").iterdir())


def test_every_second_alphabet_by_name_is_for_validation_and_none_is_in_two_splits(
    tmp_path: Path,
) -> None:
    data = tiny(tmp_path).load(tmp_path)
    assert data.train.classes == (
        "Armenian/character01",
        "Armenian/character02",
        "Cyrillic/character01",
    )
    assert {name.partition("/")[0] for name in data.validation.classes} == {"Braille", "Futurama"}
    assert data.test.classes == ("Angelic/character01", "Angelic/character02", "Keble/character01")


def load_tiny(root: Path) -> dict[str, NDArray[np.uint8]]:
    """The images of each class by its name."""
    data = tiny(root).load(root)
    return {
        name: part.images[part.labels == label]
        for part in (data.train, data.validation, data.test)
        for label, name in enumerate(part.classes)
    }


def test_a_drawing_is_the_mean_of_its_ink_over_boxes_and_ink_is_255(tmp_path: Path) -> None:
    """A box holds the pixels whose middles are in it; Pillow rounds after rows and columns."""
    width = 105 / 28
    middles = (np.arange(105) + 0.5) / width - (np.arange(28)[:, None] + 0.5)
    weights = ((middles > -0.5) & (middles <= 0.5)).astype(float)
    weights /= weights.sum(1, keepdims=True)
    found = load_tiny(tmp_path)
    for file, alphabets in ALPHABETS.items():
        for alphabet, characters in alphabets.items():
            for character in range(1, characters + 1):
                images = found[f"{alphabet}/character{character:02d}"]
                assert images.shape == (DRAWINGS, 28, 28, 1)
                for i in range(DRAWINGS):
                    drawn = 255.0 * ink(file, alphabet, character, i + 1)
                    truth = weights @ drawn @ weights.T
                    np.testing.assert_allclose(images[i, ..., 0], truth, atol=1.01)


def test_the_cache_has_the_authors_two_sets(tmp_path: Path) -> None:
    load_tiny(tmp_path)
    assert held(tmp_path) == [BACKGROUND, EVALUATION, "test.npz", "train.npz"]
    with np.load(tmp_path / "omniglot" / "train.npz", allow_pickle=False) as arrays:
        assert len(arrays["classes"]) == 8
        assert arrays["images"].dtype == np.uint8
        np.testing.assert_array_equal(arrays["labels"], np.repeat(np.arange(8), DRAWINGS))


def test_other_files_in_the_zip_are_left_alone(tmp_path: Path) -> None:
    extra = {
        "__MACOSX/images_background/Armenian/character01/._0001_01.png": b"no picture",
        "images_background/Armenian/.DS_Store": b"no picture",
        "images_background/readme.txt": b"",
        "../../images_background/Armenian/character01/0001_04.png": b"no picture",
    }
    content = pack({**members(BACKGROUND), **extra})
    chosen = put(tmp_path, content, pack(members(EVALUATION)))
    assert len(chosen.load(tmp_path).train.classes) == 3


FIRST = next(iter(members(BACKGROUND)))


def changed(raw: bytes) -> dict[str, bytes]:
    return {**members(BACKGROUND), FIRST: raw}


def drawing(size: tuple[int, int]) -> bytes:
    return png(np.zeros(size, bool))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (changed(b"no picture"), rf"{BACKGROUND}: {FIRST} cannot be read as a picture"),
        (changed(members(BACKGROUND)[FIRST][:70]), rf"{FIRST} cannot be read as a picture"),
        (changed(drawing((28, 28))), rf"{FIRST} has the size \(28, 28\), expected \(105, 105\)"),
        (changed(bytes(100_001)), rf"{FIRST} has 100001 bytes, too many for a drawing"),
        ({k: v for k, v in members(BACKGROUND).items() if k != FIRST}, "character01' has 2 images"),
        ({}, "number of classes is 0, expected 8"),
        (None, "not a complete zip file"),
    ],
)
def test_a_zip_with_other_content_is_refused_and_leaves_nothing(
    content: dict[str, bytes] | None, says: str, tmp_path: Path
) -> None:
    raw = b"text" if content is None else pack(content)
    with pytest.raises(UserError, match=says):
        put(tmp_path, raw, pack(members(EVALUATION))).load(tmp_path)
    assert held(tmp_path) == [BACKGROUND, EVALUATION]


def test_a_member_whose_bytes_changed_is_refused(tmp_path: Path) -> None:
    raw = pack(members(BACKGROUND))
    at = raw.index(b"IDAT") + 6
    flipped = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
    with pytest.raises(UserError, match="not a complete zip file: Bad CRC"):
        put(tmp_path, flipped, pack(members(EVALUATION))).load(tmp_path)


def test_real_omniglot_holds_out_the_alphabets_that_are_documented() -> None:
    if omniglot.missing(Path(os.environ.get("BILEVEL_DATA") or "/nonexistent")):
        pytest.skip("BILEVEL_DATA has no omniglot")
    data = load_images("omniglot")
    alphabets = [
        {name.partition("/")[0] for name in part.classes}
        for part in (data.train, data.validation, data.test)
    ]
    assert [len(names) for names in alphabets] == [25, 5, 20]
    assert len(set.union(*alphabets)) == 50
    said = Omniglot.__doc__ or ""
    assert all(name.partition("_(")[0] in said for name in alphabets[1])
    for part in (data.train, data.validation, data.test):
        assert (part.counts() == 20).all()
        assert (part.images > 127).mean() < 0.2  # ink is bright, and paper is most of a drawing
