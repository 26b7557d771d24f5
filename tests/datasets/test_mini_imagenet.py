"""mini-ImageNet, from files in the formats in which it is passed on, made by the tests."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bilevel.datasets.image_origin import ImageClasses
from bilevel.datasets.mini_imagenet import mini_imagenet
from bilevel.errors import UserError

from .progress_bars import Bar, InterruptedBar

SPLITS = {"train": "train", "val": "validation", "test": "test"}  # theirs, ours
CLASSES = {"train": ["n03", "n01", "n02"], "val": ["n05", "n04"], "test": ["n06"]}
SIZE = (4, 6, 3)
tiny = dataclasses.replace(
    mini_imagenet, classes={"train": 3, "validation": 2, "test": 1}, shape=SIZE, fewest_a_class=2
)


def content(split: str) -> tuple[NDArray[np.uint8], list[str]]:
    """Images, and the class of each: the i-th class has i + 2 of them, in no order."""
    rng = np.random.default_rng(len(split))
    names = [name for i, name in enumerate(CLASSES[split]) for _ in range(i + 2)]
    names = [names[i] for i in rng.permutation(len(names))]
    return rng.integers(256, size=(len(names), *SIZE), dtype=np.uint8), names


def rows_of(split: str) -> dict[str, list[int]]:
    names = content(split)[1]
    return {c: [i for i, name in enumerate(names) if name == c] for c in CLASSES[split]}


def cached(split: str) -> dict[str, Any]:
    """The layout of mini-imagenet-cache-*.pkl."""
    return {"image_data": content(split)[0], "class_dict": rows_of(split)}


def numbered(split: str) -> dict[str, Any]:
    """The layout of miniImageNet_category_split_*.pickle."""
    first = {"train": 0, "val": 64, "test": 80}[split]
    label = {name: first + i for i, name in enumerate(CLASSES[split])}
    images, names = content(split)
    return {"data": images, "labels": [label[n] for n in names], "catname2label": label}


def number_file(split: str) -> str:
    return (
        f"miniImageNet_category_split_{'train_phase_train' if split == 'train' else split}.pickle"
    )


def folder(root: Path) -> Path:
    made = root / "mini_imagenet"
    made.mkdir(exist_ok=True)
    return made


def put_caches(root: Path, protocol: int = 2) -> None:
    for split in SPLITS:
        raw = pickle.dumps(cached(split), protocol)
        (folder(root) / f"mini-imagenet-cache-{split}.pkl").write_bytes(raw)


def put_pictures(root: Path, scale: int = 1) -> None:
    """Lossless pictures under the names that the lists have, `scale` times as large."""
    images = folder(root) / "images"
    images.mkdir()
    for split in SPLITS:
        lines = ["filename,label"]
        for i, (image, name) in enumerate(zip(*content(split), strict=True)):
            large = np.kron(image, np.ones((scale, scale, 1), np.uint8))
            Image.fromarray(large).save(images / f"{name}{i:08d}.png")
            lines.append(f"{name}{i:08d}.png,{name}")
        (folder(root) / f"{split}.csv").write_text("\n".join(lines) + "\n")


def held(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "mini_imagenet").iterdir())


def check(data: ImageClasses) -> None:
    """Each class has its images as they lay; classes are in order of their names."""
    for theirs, ours in SPLITS.items():
        part, images = getattr(data, ours), content(theirs)[0]
        assert part.classes == tuple(sorted(CLASSES[theirs]))
        assert part.labels.tolist() == sorted(part.labels.tolist())
        for label, name in enumerate(part.classes):
            found = part.images[part.labels == label]
            np.testing.assert_array_equal(found, images[rows_of(theirs)[name]])


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_the_usual_pickles_are_laid_out_and_kept(tmp_path: Path, protocol: int) -> None:
    put_caches(tmp_path, protocol)
    sources = held(tmp_path)
    check(tiny.load(tmp_path))
    assert held(tmp_path) == sorted([*sources, "train.npz", "validation.npz", "test.npz"])
    for source in sources:
        (folder(tmp_path) / source).unlink()
    check(tiny.load(tmp_path))


def test_keys_and_names_that_python_2_wrote_are_read(tmp_path: Path) -> None:
    for split in SPLITS:
        by_name = {name.encode(): rows for name, rows in rows_of(split).items()}
        raw = pickle.dumps({b"image_data": content(split)[0], b"class_dict": by_name}, 4)
        (folder(tmp_path) / f"mini-imagenet-cache-{split}.pkl").write_bytes(raw)
    check(tiny.load(tmp_path))


def test_the_other_pickles_have_a_number_for_each_image(tmp_path: Path) -> None:
    for split in SPLITS:
        (folder(tmp_path) / number_file(split)).write_bytes(pickle.dumps(numbered(split)))
    check(tiny.load(tmp_path))


def test_numbers_without_names_make_names_that_differ_between_the_splits(tmp_path: Path) -> None:
    for split in SPLITS:
        entries = numbered(split)
        del entries["catname2label"]
        entries["labels"] = np.array(entries["labels"]) % 16  # from 0 in each split
        entries["data"] = list(entries["data"])
        (folder(tmp_path) / number_file(split)).write_bytes(pickle.dumps(entries))
    data = tiny.load(tmp_path)
    assert data.train.classes[1] == "miniImageNet_category_split_train_phase_train 001"
    assert data.test.classes == ("miniImageNet_category_split_test 000",)
    np.testing.assert_array_equal(data.test.images, content("test")[0])


def test_a_folder_of_pictures_with_the_lists_is_laid_out(tmp_path: Path) -> None:
    put_pictures(tmp_path)
    check(tiny.load(tmp_path))


def test_pictures_of_another_size_or_mode_are_squeezed_and_coloured(tmp_path: Path) -> None:
    put_pictures(tmp_path, scale=8)
    grey = next((folder(tmp_path) / "images").glob("n06*"))
    Image.new("L", (50, 20), 77).save(grey)
    data = tiny.load(tmp_path)
    assert data.train.images.shape == (9, *SIZE)
    assert (data.test.images == 77).all(axis=(1, 2, 3)).any()
    large = np.kron(content("train")[0][rows_of("train")["n01"][0]], np.ones((8, 8, 1)))
    rows = np.einsum("wi,hic->hwc", lanczos(6), large).clip(0, 255).round()
    truth = np.einsum("hi,iwc->hwc", lanczos(4), rows).clip(0, 255)
    np.testing.assert_allclose(data.train.images[0], truth, atol=1.01)


def lanczos(size: int) -> NDArray[np.float64]:
    """Weights that shrink eightfold: sinc(t) sinc(t/3) at the distance t, within 3."""
    t = (np.arange(8 * size) + 0.5) / 8 - (np.arange(size)[:, None] + 0.5)
    weights = np.where(abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0)
    return weights / weights.sum(1, keepdims=True)


def test_a_list_may_have_a_space_after_the_comma(tmp_path: Path) -> None:
    put_pictures(tmp_path)
    for split in SPLITS:
        listing = folder(tmp_path) / f"{split}.csv"
        listing.write_text(listing.read_text().replace(",", ", "))
    check(tiny.load(tmp_path))


def test_each_split_may_come_from_another_source_and_a_bar_shows_it(tmp_path: Path) -> None:
    put_pictures(tmp_path)
    for split in ("train", "val"):
        (folder(tmp_path) / f"{split}.csv").unlink()
    (folder(tmp_path) / number_file("val")).write_bytes(pickle.dumps(numbered("val")))
    raw = pickle.dumps(cached("train"))
    (folder(tmp_path) / "mini-imagenet-cache-train.pkl").write_bytes(raw)
    bars: dict[str, Bar] = {}
    check(tiny.load(tmp_path, lambda file: bars.setdefault(file, Bar())))
    assert list(bars) == ["mini-imagenet-cache-train.pkl", number_file("val"), "test.csv"]
    assert all(bar.closed and bar.shown == bar.total > 0 for bar in bars.values())
    assert bars["test.csv"].total == content("test")[0].nbytes


def test_without_files_one_is_told_what_to_obtain_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be downloaded freely") as caught:
        mini_imagenet.load(tmp_path)
    message = str(caught.value)
    assert f"\n  {tmp_path / 'mini_imagenet'}\n" in message
    for split in SPLITS:
        for file in (f"mini-imagenet-cache-{split}.pkl", number_file(split), f"{split}.csv"):
            assert file in message
    assert "`bilevel data get mini-imagenet`" in message
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_left_alone_and_only_the_rest_is_made(tmp_path: Path) -> None:
    put_caches(tmp_path)
    tiny.load(tmp_path)
    (folder(tmp_path) / "test.npz").unlink()
    for split in ("train", "val"):
        (folder(tmp_path) / f"mini-imagenet-cache-{split}.pkl").unlink()
    before = (folder(tmp_path) / "train.npz").stat().st_mtime_ns
    check(tiny.load(tmp_path))
    assert (folder(tmp_path) / "train.npz").stat().st_mtime_ns == before
    (folder(tmp_path) / "train.npz").unlink()
    with pytest.raises(UserError, match=r"With what is there now, train\.npz cannot be made"):
        tiny.load(tmp_path)


def test_an_interruption_in_the_last_split_leaves_none(tmp_path: Path) -> None:
    put_pictures(tmp_path)
    before = held(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        tiny.load(tmp_path, lambda file: InterruptedBar() if file == "test.csv" else Bar())
    assert held(tmp_path) == before


class Attack:
    def __reduce__(self) -> Any:
        return os.mkdir, ("canary",)


def other(**changes: Any) -> dict[str, Any]:
    return {**cached("train"), **changes}


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (other(class_dict={"n01": Attack()}), "asks for posix.mkdir"),
        ({"x": 1}, "another layout: KeyError.*data.*found are x"),
        (other(class_dict=3), "another layout.*image_data and class_dict, or data and labels"),
        (other(class_dict={"n01": [0, 0]}), "does not have each image once"),
        (other(class_dict={"n01": ["a"]}), "does not have each image once"),
        (other(class_dict={}), "another layout"),
        (other(class_dict={"n01": [0, 1, 2]}), "has 9 images, but classes for 3"),
        (
            other(image_data=content("train")[0] / 255),
            "type of the images is float64, expected uint8",
        ),
        (
            other(image_data=content("train")[0][:, :2]),
            r"image is \(2, 6, 3\), expected \(4, 6, 3\)",
        ),
        (other(class_dict={"n01": range(4), "n02": range(4, 9)}), "asks for builtins.range"),
        (
            other(class_dict={"n01": [0, 1, 2, 3], "n02": [4, 5, 6, 7, 8]}),
            "number of classes is 2, expected 3",
        ),
        (
            other(class_dict={"n01": [0], "n02": [1, 2, 3, 4], "n03": [5, 6, 7, 8]}),
            "class 'n01' has 1 images, expected 2 or more",
        ),
        ({"data": content("train")[0], "labels": ["a"] * 9}, "another layout: invalid literal"),
        ({"data": content("train")[0], "labels": [1] * 8}, "has 9 images, but classes for 8"),
    ],
)
def test_a_pickle_with_other_content_is_refused_and_leaves_nothing(
    entries: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put_caches(tmp_path)
    before = held(tmp_path)
    path = folder(tmp_path) / "mini-imagenet-cache-train.pkl"
    path.write_bytes(pickle.dumps(entries))
    with pytest.raises(UserError, match=says):
        tiny.load(tmp_path)
    assert held(tmp_path) == before
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("listing", "says"),
    [
        (b"a,b\n1,2\n", r"train\.csv is not a csv file with the columns filename and label"),
        (b"filename,label\n\xff,n01\n", r"train\.csv is not a csv file"),
        (b"filename,label\nn01.png\n", r"train\.csv, line 2: expected .* found 'n01.png' and None"),
        (b"filename,label\n../a.png,n01\n", r"line 2: expected the name .* '../a.png'"),
        (b"filename,label\n/etc/passwd,n01\n", "line 2: expected the name"),
        (b"filename,label\nabsent.png,n01\n", r"absent\.png is missing, but listed"),
        (b"filename,label\nbad.png,n01\n", r"bad\.png cannot be read as a picture"),
        (b"filename,label\n", "number of classes is 0, expected 3"),
        (b"", "number of classes is 0, expected 3"),
    ],
)
def test_a_bad_list_or_picture_is_refused_and_leaves_nothing(
    listing: bytes, says: str, tmp_path: Path
) -> None:
    put_pictures(tmp_path)
    (folder(tmp_path) / "train.csv").write_bytes(listing)
    (folder(tmp_path) / "images" / "bad.png").write_bytes(b"no picture")
    before = held(tmp_path)
    with pytest.raises(UserError, match=says):
        tiny.load(tmp_path)
    assert held(tmp_path) == before
