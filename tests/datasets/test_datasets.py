"""The data sets by name: digits, newsgroups, and the real data where they are present."""

from __future__ import annotations

import dataclasses
import importlib
import os
import urllib.error
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest
import scipy.sparse

import bilevel
from bilevel.datasets import Dataset, TableOrigin, catalogue, data_folder, load
from bilevel.datasets.fashion_mnist import fashion_mnist
from bilevel.datasets.fc100 import fc100
from bilevel.datasets.mnist import mnist
from bilevel.datasets.newsgroups import newsgroups
from bilevel.datasets.omniglot import omniglot
from bilevel.errors import UserError


def check_types(dataset: Dataset) -> None:
    for X, y in (dataset.train, dataset.test):
        assert X.dtype == np.float32
        assert y.dtype == np.int64
        assert X.shape[0] == len(y)


def tiny_news(subset: str) -> SimpleNamespace:
    """What scikit-learn's fetcher gives: float64 CSR, int labels, a list of names."""
    rows = {"train": 4, "test": 3}[subset]
    X = scipy.sparse.random(rows, 9, density=0.4, random_state=rows, format="csr")
    return SimpleNamespace(data=X, target=np.arange(rows) % 2, target_names=["alt.a", "rec.b"])


@pytest.fixture
def tiny_newsgroups(monkeypatch: pytest.MonkeyPatch) -> Any:
    def fetch(*, subset: str, remove: tuple[str, ...], data_home: str) -> SimpleNamespace:
        assert remove == ("headers", "footers", "quotes")
        Path(data_home, "cache.pkl").write_text("a pickle of scikit-learn's")
        return tiny_news(subset)

    module = importlib.import_module("sklearn.datasets")
    monkeypatch.setattr(module, "fetch_20newsgroups_vectorized", fetch)
    facts = {"train_rows": 4, "test_rows": 3, "features": 9, "class_names": ("alt.a", "rec.b")}
    return dataclasses.replace(newsgroups, **facts)


def test_newsgroups_are_fetched_once_and_kept_without_pickles(
    tmp_path: Path, tiny_newsgroups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = Mock()
    first = tiny_newsgroups.load(tmp_path, bar)
    assert bar.mock_calls == [call("20news-bydate.tar.gz"), call().close()]
    assert [path.name for path in (tmp_path / "newsgroups").iterdir()] == ["20news.npz"]
    with np.load(tmp_path / "newsgroups" / "20news.npz", allow_pickle=False) as arrays:
        assert all(arrays[key].dtype != object for key in arrays.files)
        kinds = ("data", "indices", "indptr", "shape", "y")
        keys = {f"{part}_{kind}" for part in ("train", "test") for kind in kinds}
        assert set(arrays.files) == keys | {"target_names"}
    monkeypatch.undo()
    again = tiny_newsgroups.load(tmp_path)
    for dataset in (first, again):
        check_types(dataset)
        assert isinstance(dataset.train[0], scipy.sparse.csr_array)
        np.testing.assert_array_equal(
            dataset.test[0].toarray(), tiny_news("test").data.toarray().astype(np.float32)
        )


def test_newsgroups_without_a_network_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(**_: Any) -> None:
        raise urllib.error.URLError("no network")

    module = importlib.import_module("sklearn.datasets")
    monkeypatch.setattr(module, "fetch_20newsgroups_vectorized", fetch)
    with pytest.raises(UserError, match="no network") as caught:
        newsgroups.load(tmp_path)
    assert str(tmp_path / "newsgroups") in str(caught.value)
    assert list((tmp_path / "newsgroups").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not make"):
        newsgroups.load(tmp_path / "file")


def test_a_bad_newsgroups_file_is_refused(tmp_path: Path, tiny_newsgroups: Any) -> None:
    tiny_newsgroups.load(tmp_path)
    path = tmp_path / "newsgroups" / "20news.npz"
    good = path.read_bytes()
    with np.load(path) as arrays:
        plain = {key: arrays[key] for key in arrays.files}
    half = len(good) // 2
    broken = [b"", b"text", good[:half], good[:half] + b"\xff\xff\xff" + good[half + 3 :]]
    for raw in broken:
        path.write_bytes(raw)
        with pytest.raises(UserError, match=r"20news\.npz is damaged"):
            tiny_newsgroups.load(tmp_path)
    for changes in (
        {"train_indices": plain["train_indices"] + 9},
        {"test_shape": np.array(3)},
        {"train_indptr": plain["train_indptr"][:-1]},
        {"train_y": np.array([object()] * 4)},  # would need a pickle
    ):
        np.savez(path, **{**plain, **changes})
        with pytest.raises(UserError, match=r"20news\.npz is damaged"):
            tiny_newsgroups.load(tmp_path)
    del plain["test_y"]
    np.savez(path, **plain)
    with pytest.raises(UserError, match="test_y"):
        tiny_newsgroups.load(tmp_path)


def test_digits_are_split_the_same_way_each_time_with_all_classes_alike() -> None:
    one, two = load("digits"), load("digits")
    check_types(one)
    for (X, y), (again, labels) in ((one.train, two.train), (one.test, two.test)):
        np.testing.assert_array_equal(X, again)
        np.testing.assert_array_equal(y, labels)
        shares = np.bincount(y) / len(y)
        assert shares.max() - shares.min() < 0.02
    assert (len(one.train[1]), len(one.test[1])) == (1437, 360)
    assert {row.tobytes() for row in one.train[0]}.isdisjoint(row.tobytes() for row in one.test[0])


def test_the_folder_is_that_of_the_environment_else_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILEVEL_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.setenv("BILEVEL_DATA", "~/data")
    assert data_folder() == Path.home() / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for unset in (
        lambda: monkeypatch.setenv("BILEVEL_DATA", ""),
        lambda: monkeypatch.delenv("BILEVEL_DATA"),
    ):
        unset()
        assert data_folder().name == "bilevel"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="no data set named 'cifar': choose one of covtype, digits"):
        bilevel.datasets.load("cifar")


@pytest.mark.parametrize(
    "name", [name for name, origin in catalogue().items() if isinstance(origin, TableOrigin)]
)
def test_real_data_are_as_stated(name: str) -> None:
    root = Path(os.environ.get("BILEVEL_DATA") or "/nonexistent")
    origin = catalogue()[name]
    if origin.missing(root):
        pytest.skip(f"BILEVEL_DATA has no {name}")
    dataset = load(name)
    check_types(dataset)
    X, y = dataset.train
    assert sorted(np.unique(y)) == list(range(len(dataset.class_names)))
    if scipy.sparse.issparse(X):
        lengths = scipy.sparse.linalg.norm(X, axis=1)
        assert np.allclose(lengths[lengths > 0], 1, atol=1e-5)
    else:
        assert -1 <= X.min() <= 0
        assert X.max() == 1


def test_every_download_is_by_https_and_checked_by_sha256() -> None:
    origins = [omniglot, fc100]
    remotes = [remote for origin in origins for remote in origin.archives]
    assert all(remote.url.startswith("https://") for remote in remotes)
    assert all(len(remote.checksum) == len("sha256:") + 64 for remote in remotes)
    for images in (mnist, fashion_mnist):
        assert images.source.startswith("https://")
        assert all(len(checksum) == 64 for checksum in images.sha256)
