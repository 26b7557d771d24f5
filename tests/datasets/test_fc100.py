"""FC100, from archives in CIFAR-100's format that the tests make."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import os
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bilevel.datasets.download
import bilevel.datasets.fc100
from bilevel.datasets import load_images
from bilevel.datasets.download import Remote
from bilevel.datasets.fc100 import FC100, fc100
from bilevel.errors import UserError

from .progress_bars import InterruptedBar

# The table of https://www.cs.toronto.edu/~kriz/cifar.html.
CIFAR_100 = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
COARSE = sorted(CIFAR_100)
FINE = sorted(name for names in CIFAR_100.values() for name in names.split())
OWNER = {name: COARSE.index(big) for big, names in CIFAR_100.items() for name in names.split()}
FILE = "cifar-100-python.tar.gz"


def cifar() -> dict[str, dict[bytes, Any]]:
    """CIFAR-100's three files with two training images and one test image of each class."""
    rng = np.random.default_rng(0)
    members: dict[str, dict[bytes, Any]] = {
        "meta": {
            b"fine_label_names": [name.encode() for name in FINE],
            b"coarse_label_names": [name.encode() for name in COARSE],
        }
    }
    for name, copies in (("train", 2), ("test", 1)):
        labels = rng.permutation(np.repeat(np.arange(100), copies)).tolist()
        members[name] = {
            b"batch_label": b"one",
            b"fine_labels": labels,
            b"coarse_labels": [OWNER[FINE[label]] for label in labels],
            b"data": rng.integers(256, size=(len(labels), 3072), dtype=np.uint8),
            b"filenames": [b"a.png"] * len(labels),
        }
    return members


def pack(members: dict[str, Any]) -> bytes:
    """A .tar.gz of them: dicts are pickled as Python 2 would, what is bytes goes in as it is."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            raw = content if isinstance(content, bytes) else pickle.dumps(content, 2)
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return stream.getvalue()


def origin(raw: bytes) -> FC100:
    remote = Remote(f"http://127.0.0.1:9/{FILE}", f"md5:{hashlib.md5(raw).hexdigest()}")
    return dataclasses.replace(fc100, images_a_class=3, fewest_a_class=3, archives=(remote,))


def put(root: Path, raw: bytes) -> FC100:
    (root / "fc100").mkdir(exist_ok=True)
    (root / "fc100" / FILE).write_bytes(raw)
    return origin(raw)


def held(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "fc100").iterdir())


@pytest.fixture(scope="module")
def raw() -> bytes:
    return pack(cifar())


def test_classes_go_where_their_superclass_goes_in_order_of_their_names(
    tmp_path: Path, raw: bytes
) -> None:
    data = put(tmp_path, raw).load(tmp_path)
    for split, part in (
        ("train", data.train),
        ("validation", data.validation),
        ("test", data.test),
    ):
        owners = fc100.superclasses[split]
        names = sorted(name for owner in owners for name in CIFAR_100[owner].split())
        assert part.classes == tuple(names)
        np.testing.assert_array_equal(part.labels, np.repeat(np.arange(len(names)), 3))
    assert (len(data.train.classes), len(data.validation.classes)) == (60, 20)
    every = [owner for owners in fc100.superclasses.values() for owner in owners]
    assert sorted(every) == COARSE


def test_a_class_has_its_training_images_and_then_its_test_images_as_they_lay(
    tmp_path: Path, raw: bytes
) -> None:
    data = put(tmp_path, raw).load(tmp_path)
    members = cifar()
    for part in (data.train, data.validation, data.test):
        for i, name in enumerate(part.classes):
            rows = [
                row
                for file in ("train", "test")
                for row, label in zip(
                    members[file][b"data"], members[file][b"fine_labels"], strict=True
                )
                if FINE[label] == name
            ]
            found = part.images[part.labels == i]
            for image, row in zip(found, rows, strict=True):
                red, green, blue = row.reshape(3, 1024)
                np.testing.assert_array_equal(image[1, :, 0], red[32:64])
                np.testing.assert_array_equal(image[:, 5, 1], green[5::32])
                np.testing.assert_array_equal(image[..., 2].ravel(), blue)


def test_the_files_are_made_once_and_the_users_archive_stays(tmp_path: Path, raw: bytes) -> None:
    chosen = put(tmp_path, raw)
    first = chosen.load(tmp_path)
    assert held(tmp_path) == [FILE, "test.npz", "train.npz", "validation.npz"]
    (tmp_path / "fc100" / FILE).unlink()
    again = chosen.load(tmp_path)
    np.testing.assert_array_equal(first.test.images, again.test.images)
    assert again.train.classes == first.train.classes
    for path in (tmp_path / "fc100").iterdir():
        with np.load(path, allow_pickle=False) as arrays:
            kinds = {name: arrays[name].dtype.kind for name in arrays.files}
            assert kinds == {"images": "u", "labels": "i", "classes": "U"}


def test_an_archive_that_was_downloaded_goes_when_the_files_are_made(
    tmp_path: Path, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.write_bytes(raw)

    def download(url: str, checksum: str, target: Path, bar: Any) -> None:
        target.parent.mkdir(parents=True)
        shutil.copyfile(served, target)

    monkeypatch.setattr(bilevel.datasets.download, "download", download)
    origin(raw).load(tmp_path)
    assert held(tmp_path) == ["test.npz", "train.npz", "validation.npz"]


def test_without_a_network_one_is_told_which_archive_to_put_where(
    tmp_path: Path, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(UserError, match="could not download") as caught:
        origin(raw).load(tmp_path)
    assert f"into {tmp_path / 'fc100'}\n  http://127.0.0.1:9/{FILE}\n" in str(caught.value)


def test_another_archive_is_refused_by_its_checksum(tmp_path: Path, raw: bytes) -> None:
    put(tmp_path, raw + b"\0")
    with pytest.raises(UserError, match=rf"{FILE} is damaged .* md5 is .* expected"):
        origin(raw).load(tmp_path)
    assert held(tmp_path) == [FILE]


def without(name: str, key: bytes) -> dict[str, Any]:
    members = cifar()
    del members[name][key]
    return members


def with_labels(labels: list[int]) -> dict[str, Any]:
    members = cifar()
    members["test"][b"fine_labels"] = labels
    return members


def cut(member: dict[bytes, Any]) -> dict[bytes, Any]:
    return {**member, b"data": member[b"data"][:-1]}


class Attack:
    def __reduce__(self) -> Any:
        return os.mkdir, ("canary",)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({k: v for k, v in cifar().items() if k != "test"}, "has no file test in cifar-100-python"),
        ({**cifar(), "train": b"no pickle"}, "cifar-100-python/train is not a complete pickle"),
        ({**cifar(), "train": pickle.dumps([])}, "cifar-100-python/train should hold a dict"),
        (
            {**cifar(), "meta": pickle.dumps({"a": Attack()})},
            "cifar-100-python/meta asks for posix",
        ),
        (without("train", b"data"), "not CIFAR-100's archive.*'data'"),
        (without("meta", b"coarse_label_names"), "not CIFAR-100's archive.*coarse_label_names"),
        (with_labels([0, 1]), "not CIFAR-100's archive"),
        (with_labels([100] * 100), "not CIFAR-100's archive.*300 images and 300 labels up to 100"),
        ({**cifar(), "test": cut(cifar()["test"])}, "not CIFAR-100's archive.*299 images and 300"),
        (with_labels([0] * 100), "train.npz was not made: class 'aquarium_fish' has 2 images"),
    ],
)
def test_an_archive_with_other_content_is_refused_and_leaves_nothing(
    members: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = put(tmp_path, pack(members))
    with pytest.raises(UserError, match=says):
        chosen.load(tmp_path)
    assert held(tmp_path) == [FILE]
    assert not (tmp_path / "canary").exists()


def test_a_broken_archive_is_refused(tmp_path: Path, raw: bytes) -> None:
    half = raw[: len(raw) // 2]
    for broken in (b"", b"text", half, gzip.compress(b"no tar")):
        with pytest.raises(UserError, match=FILE):
            put(tmp_path, broken).load(tmp_path)
        assert held(tmp_path) == [FILE]


def test_a_member_that_is_a_link_or_too_large_is_not_read(
    tmp_path: Path, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in ("train", "test", "meta"):
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
    with pytest.raises(UserError, match="has no file meta, test, train"):
        put(tmp_path, stream.getvalue()).load(tmp_path)
    monkeypatch.setattr(bilevel.datasets.fc100, "_LARGEST", 1000)
    with pytest.raises(UserError, match="bytes, more than CIFAR-100's"):
        put(tmp_path, raw).load(tmp_path)


def test_an_interrupted_conversion_leaves_nothing(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path, raw).load(tmp_path, lambda file: InterruptedBar())
    assert held(tmp_path) == [FILE]


def test_real_fc100_has_the_classes_that_the_archive_gives(tmp_path: Path, raw: bytes) -> None:
    root = Path(os.environ.get("BILEVEL_DATA") or "/nonexistent")
    if fc100.missing(root):
        pytest.skip("BILEVEL_DATA has no fc100")
    made, real = put(tmp_path, raw).load(tmp_path), load_images("fc100")
    for split in ("train", "validation", "test"):
        assert getattr(made, split).classes == getattr(real, split).classes
