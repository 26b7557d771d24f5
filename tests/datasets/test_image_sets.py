"""Images by class: what is read from the data folder, and what of it is refused."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilevel.datasets import ImageOrigin, TableOrigin, catalogue, load, load_images
from bilevel.datasets.image_origin import in_order
from bilevel.datasets.mini_imagenet import mini_imagenet
from bilevel.errors import UserError

tiny = dataclasses.replace(
    mini_imagenet,
    classes={"train": 3, "validation": 2, "test": 1},
    shape=(2, 2, 3),
    fewest_a_class=2,
)


def arrays(first: int, classes: int, counts: Mapping[int, int] | None = None) -> dict[str, Any]:
    """The content of a file: classes n(first), ... with 3 images each, or as `counts` says."""
    counts = counts or {}
    labels = np.repeat(np.arange(classes), [counts.get(c, 3) for c in range(classes)])
    images = np.random.default_rng(first).integers(256, size=(len(labels), 2, 2, 3))
    names = np.array([f"n{first + c}" for c in range(classes)])
    return {"images": images.astype(np.uint8), "labels": labels, "classes": names}


def put(root: Path, **changes: dict[str, Any]) -> Path:
    folder = root / "mini_imagenet"
    folder.mkdir(exist_ok=True)
    parts = {"train": arrays(0, 3), "validation": arrays(3, 2), "test": arrays(5, 1)}
    for split, part in parts.items():
        np.savez(folder / f"{split}.npz", **{**part, **changes.get(split, {})})
    return folder


def test_files_are_read_as_they_are_and_nothing_is_written(tmp_path: Path) -> None:
    folder = put(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    data = tiny.load(tmp_path)
    assert data.name == "mini-imagenet"
    for part, truth in (
        (data.train, arrays(0, 3)),
        (data.validation, arrays(3, 2)),
        (data.test, arrays(5, 1)),
    ):
        np.testing.assert_array_equal(part.images, truth["images"])
        np.testing.assert_array_equal(part.labels, truth["labels"])
        assert (part.images.dtype, part.labels.dtype) == (np.uint8, np.int64)
        assert part.classes == tuple(truth["classes"].tolist())
        assert all(type(name) is str for name in part.classes)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_classes_may_have_unequal_numbers_of_images_and_any_order(tmp_path: Path) -> None:
    part = arrays(0, 3, {0: 2, 2: 7})
    order = np.random.default_rng(0).permutation(len(part["labels"]))
    mixed = {"images": part["images"][order], "labels": part["labels"][order]}
    put(tmp_path, train=mixed)
    assert tiny.load(tmp_path).train.counts().tolist() == [2, 3, 7]
    assert tiny.facts(tmp_path)["images per class"] == "2–7"


IMAGES = arrays(0, 3)["images"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": IMAGES / 255}, "type of the images is float64, expected uint8"),
        ({"images": IMAGES[..., 0]}, r"shape of an image is \(2, 2\), expected \(2, 2, 3\)"),
        ({"images": IMAGES[:, :1]}, r"shape of an image is \(1, 2, 3\)"),
        ({"images": IMAGES[:8]}, r"shape of the labels is \(9,\), expected \(8,\)"),
        ({"labels": arrays(0, 3)["labels"].astype(np.int32)}, "labels is int32, expected int64"),
        ({"labels": np.zeros((9, 1), np.int64)}, r"shape of the labels is \(9, 1\)"),
        ({"labels": arrays(0, 3)["labels"] + 1}, r"labels \[3, 3, 3\] are not among 0, ..., 2"),
        ({"labels": arrays(0, 3)["labels"] - 1}, r"labels \[-1, -1, -1\] are not among 0, ..., 2"),
        (
            {"labels": np.repeat([0, 1, 2], [5, 1, 3])},
            "class 'n1' has 1 images, expected 2 or more",
        ),
        ({"labels": np.repeat([0, 1], [5, 4])}, "class 'n2' has 0 images"),
        ({"classes": np.array(["n0", "n1"])}, "number of classes is 2, expected 3"),
        ({"classes": np.array("n01")}, "another layout: classes is <U3 of shape"),
        ({"classes": np.array([b"a", b"b", b"c"])}, "another layout: classes is .S1 of shape"),
        ({"classes": np.array([object()] * 3)}, "damaged or has another layout.*pickle"),
    ],
)
def test_a_file_with_other_content_is_named_with_the_reason(
    change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    folder = put(tmp_path, train=change)
    with pytest.raises(UserError, match=says) as caught:
        tiny.load(tmp_path)
    assert str(folder / "train.npz") in str(caught.value)
    assert "Delete it and run `bilevel data get mini-imagenet`." in str(caught.value)
    assert (folder / "train.npz").exists()


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_damaged_file_is_named(tmp_path: Path, split: str) -> None:
    folder = put(tmp_path)
    good = (folder / f"{split}.npz").read_bytes()
    with np.load(folder / f"{split}.npz") as content:
        at = good.index(content["images"].tobytes())
    for raw in (b"", b"text", good[:200], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
        (folder / f"{split}.npz").write_bytes(raw)
        with pytest.raises(UserError, match=rf"{split}\.npz is damaged"):
            tiny.load(tmp_path)


def test_a_file_without_one_of_its_arrays_is_named(tmp_path: Path) -> None:
    folder = put(tmp_path)
    part = arrays(5, 1)
    del part["labels"]
    np.savez(folder / "test.npz", **part)
    with pytest.raises(UserError, match=r"test\.npz is damaged.*labels"):
        tiny.load(tmp_path)


def test_a_class_in_two_splits_is_refused(tmp_path: Path) -> None:
    put(tmp_path, test={"classes": np.array(["n4"])})
    with pytest.raises(UserError, match=r"classes that occur twice: found \['n4'\]") as caught:
        tiny.load(tmp_path)
    assert "Delete train.npz, validation.npz, test.npz in" in str(caught.value)
    put(tmp_path, train={"classes": np.array(["n0", "n1", "n0"])})
    with pytest.raises(UserError, match=r"classes that occur twice: found \['n0'\]"):
        tiny.load(tmp_path)


def test_a_file_that_cannot_be_read_is_a_user_error(tmp_path: Path) -> None:
    folder = put(tmp_path)
    (folder / "test.npz").unlink()
    (folder / "test.npz").mkdir()  # neither a file nor absent
    (folder / "mini-imagenet-cache-test.pkl").mkdir()
    with pytest.raises(UserError, match="cannot be downloaded freely"):
        tiny.load(tmp_path)


def test_the_number_of_images_is_that_of_the_files_where_they_are(tmp_path: Path) -> None:
    assert tiny.facts(tmp_path)["images per class"] == "600"
    folder = put(tmp_path)
    assert tiny.facts(tmp_path) == {
        "train / validation / test classes": "3 / 2 / 1",
        "images per class": "3",
        "pixels": "2×2×3",
    }
    (folder / "test.npz").write_bytes(b"text")
    assert tiny.facts(tmp_path)["images per class"] == "damaged"


def test_an_image_set_is_no_table_and_a_table_no_image_set() -> None:
    says = "'omniglot' holds images by class, for few-shot learning, .* load_images"
    with pytest.raises(UserError, match=says.replace(" load", ".*load")) as caught:
        load("omniglot")
    assert "rows with labels" in str(caught.value)
    assert "one of covtype, digits, fashion-mnist, ijcnn1, mnist, newsgroups" in str(caught.value)
    with pytest.raises(UserError, match="'mnist' holds rows with labels, for hyper-cl") as caught:
        load_images("mnist")
    assert "one of fc100, mini-imagenet, omniglot" in str(caught.value)
    with pytest.raises(UserError, match="no data set named 'cifar-fs'"):
        load_images("cifar-fs")


def test_every_data_set_is_of_one_kind_and_the_facts_of_a_kind_have_the_same_columns(
    tmp_path: Path,
) -> None:
    columns: dict[str, set[tuple[str, ...]]] = {}
    for origin in catalogue().values():
        assert isinstance(origin, TableOrigin) != isinstance(origin, ImageOrigin)
        columns.setdefault(origin.kind, set()).add(tuple(origin.facts(tmp_path)))
    assert len(columns) == 2
    assert all(len(kinds) == 1 for kinds in columns.values())


def test_chosen_classes_keep_the_order_of_their_images() -> None:
    labels = np.array([1, 0, 2, 1, 0])
    pixels = np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1)
    part = in_order(pixels, labels, ("a", "b", "c"), [2, 1])
    assert part.images.ravel().tolist() == [2, 0, 3]
    assert part.labels.tolist() == [0, 1, 1]
    assert part.classes == ("c", "b")
    whole = in_order(pixels, np.array([0, 0, 1, 1, 2]), ("a", "b", "c"), [0, 1, 2])
    assert whole.images is pixels, "what is in order is not copied"


def test_pillow_is_imported_only_when_pictures_are_read() -> None:
    code = "import sys, bilevel.datasets as d; d.catalogue(); sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_pillow_one_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from bilevel.datasets.pictures import picture

    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r'data sets need PIL: pip install "bilevel\[data\]"'):
        picture(b"", "a", "L")


@pytest.mark.parametrize(
    "name", [name for name, origin in catalogue().items() if isinstance(origin, ImageOrigin)]
)
def test_real_images_are_as_stated(name: str) -> None:
    root = Path(os.environ.get("BILEVEL_DATA") or "/nonexistent")
    origin = catalogue()[name]
    assert isinstance(origin, ImageOrigin)
    if origin.missing(root):
        pytest.skip(f"BILEVEL_DATA has no {name}")
    data = load_images(name)
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    assert {split: len(part.classes) for split, part in parts.items()} == origin.classes
    for part in parts.values():
        assert part.images.shape == (len(part.labels), *origin.shape)
        assert part.counts().min() >= origin.fewest_a_class
        assert (part.images.min(), part.images.max()) == (0, 255)
    names = [name for part in parts.values() for name in part.classes]
    assert len(names) == len(set(names))
