"""Images in idx files: files that the tests make, and a server on this machine."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import http.server
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilevel.datasets.idx_images import FILES, IdxImages, read_idx
from bilevel.errors import UserError

NOBODY = "http://127.0.0.1:9/"  # the discard port: nobody answers


def idx(array: np.ndarray) -> bytes:
    """The bytes of a gzipped idx file, written from the format's description."""
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes(), mtime=0)


def tiny_images() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    parts = [
        rng.integers(256, size=(6, 2, 3)),
        np.array([0, 1, 2, 0, 1, 2]),
        rng.integers(256, size=(3, 2, 3)),
        np.array([2, 1, 0]),
    ]
    return {name: idx(part) for name, part in zip(FILES, parts, strict=True)}


def tiny_origin(source: str = NOBODY) -> IdxImages:
    sums = tuple(hashlib.sha256(raw).hexdigest() for raw in tiny_images().values())
    return IdxImages(
        name="tiny",
        train_rows=6,
        test_rows=3,
        features=6,
        class_names=("a", "b", "c"),
        source=source,
        licence="ours",
        download_bytes=1,
        sha256=sums,
    )


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    return folder


def tree(root: Path) -> dict[Path, tuple[int, bytes]]:
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A web server of a folder, and the folder."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = put(tmp_path / "served", tiny_images())
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}/", folder
        running.shutdown()
        thread.join()


class RecordingBar:
    total = 0

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def update(self, amount: int) -> None:
        self.calls.append(amount)

    def reset(self) -> None:
        self.calls.append("reset")

    def close(self) -> None:
        self.calls.append("close")


def test_idx_files_of_any_shape_are_read_back(tmp_path: Path) -> None:
    for shape in [(5,), (0,), (4, 3, 2), (1, 28, 28)]:
        array = np.random.default_rng(1).integers(256, size=shape, dtype=np.uint8)
        path = tmp_path / "array.gz"
        path.write_bytes(idx(array))
        np.testing.assert_array_equal(read_idx(path, len(shape)), array)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"plain", "not a complete gzip file"),
        (idx(np.arange(50))[:-9], "not a complete gzip file"),
        (idx(np.arange(50))[:15] + b"\xff" * 40, "not a complete gzip file"),
        (gzip.compress(b"\0\0\x08\x01\0", mtime=0), "the header ends after 5 of 8 bytes"),
        (
            gzip.compress(b"\0\0\x0d\x01\0\0\0\1\0\0\0\0", mtime=0),
            "magic number is 00000d01, expected 00000801",
        ),
        (idx(np.zeros((2, 2, 2))), "magic number is 00000803, expected 00000801"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\4abc", mtime=0), "promise 4 bytes, the file has 3"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\2abc", mtime=0), "promise 2 bytes, the file has more"),
    ],
)
def test_a_bad_idx_file_is_refused_with_the_reason(tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(raw)
    with pytest.raises(UserError, match=says) as caught:
        read_idx(path, dimensions=1)
    assert str(path) in str(caught.value)


def test_images_are_flattened_and_scaled_and_nothing_is_written(tmp_path: Path) -> None:
    folder = put(tmp_path / "tiny", tiny_images())
    before = tree(tmp_path)
    folder.chmod(0o555)
    dataset = tiny_origin().load(tmp_path)
    assert (dataset.train[0].dtype, dataset.train[1].dtype) == (np.float32, np.int64)
    pixels = np.random.default_rng(0).integers(256, size=(6, 2, 3))
    scaled = pixels.reshape(6, 6).astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(dataset.train[0], scaled)
    np.testing.assert_array_equal(dataset.test[1], [2, 1, 0])
    assert dataset.class_names == ("a", "b", "c")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, name: str) -> None:
    folder = put(tmp_path / "tiny", tiny_images())
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    before = tree(tmp_path)
    with pytest.raises(UserError, match=f"{name} is damaged .* sha256 is .* expected") as caught:
        tiny_origin().load(tmp_path)
    assert "bilevel data get tiny" in str(caught.value)
    assert tree(tmp_path) == before


def test_missing_files_are_downloaded_with_a_bar_and_checked(
    tmp_path: Path, server: tuple[str, Path]
) -> None:
    bars: dict[str, RecordingBar] = {}
    root = tmp_path / "new" / "root"
    dataset = tiny_origin(server[0]).load(root, lambda file: bars.setdefault(file, RecordingBar()))
    assert dataset.train[0].shape == (6, 6)
    assert sorted(path.name for path in (root / "tiny").iterdir()) == sorted(FILES)
    assert tuple(bars) == FILES
    for name, bar in bars.items():
        assert bar.total == len(tiny_images()[name])
        assert bar.calls[-3:] == ["reset", bar.total, "close"]


def test_only_what_is_missing_is_downloaded(tmp_path: Path, server: tuple[str, Path]) -> None:
    put(tmp_path / "tiny", {name: tiny_images()[name] for name in FILES[:3]})
    before = tree(tmp_path / "tiny")
    for name in FILES[:3]:
        (server[1] / name).unlink()
    tiny_origin(server[0]).load(tmp_path)
    assert before.items() <= tree(tmp_path / "tiny").items()


def test_a_server_that_gives_another_file_leaves_nothing(
    tmp_path: Path, server: tuple[str, Path]
) -> None:
    (server[1] / FILES[0]).write_bytes(b"another")
    with pytest.raises(UserError, match="not the canonical one"):
        tiny_origin(server[0]).load(tmp_path / "root")
    assert tree(tmp_path / "root") == {}


def test_without_a_network_the_user_is_told_which_files_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    put(tmp_path / "tiny", {FILES[0]: tiny_images()[FILES[0]]})
    origin = tiny_origin(NOBODY)
    with pytest.raises(UserError) as caught:
        origin.load(tmp_path)
    message = str(caught.value)
    assert f"into {tmp_path / 'tiny'}\n" in message
    assert "BILEVEL_DATA" in message
    listed = [line.strip() for line in message.splitlines() if line.startswith("  ")]
    assert listed == [NOBODY + name for name in FILES[1:]]


def test_a_folder_that_cannot_be_made_is_a_user_error(
    tmp_path: Path, server: tuple[str, Path]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not"):
        tiny_origin(server[0]).load(tmp_path / "file")


def test_files_of_another_size_than_stated_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "tiny", tiny_images())
    origin = tiny_origin()
    for change, says in (
        ({"train_rows": 7}, r"train rows: found \(6, 6\), expected \(7, 6\)"),
        ({"features": 4}, r"expected \(6, 4\)"),
        ({"class_names": ("a", "b")}, r"train labels outside the classes: found \[2, 2\]"),
    ):
        with pytest.raises(UserError, match=says):
            dataclasses.replace(origin, **change).load(tmp_path)
