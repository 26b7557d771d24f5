"""`bilevel data list | get | path`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.progress import Progress

from bilevel.cli.bars import DownloadBar
from bilevel.cli.main import main
from bilevel.datasets import catalogue


class Shown(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Shown]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command, with an empty data folder and a proxy that nobody serves: no network."""
    for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    for direct in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(direct, "")
    monkeypatch.setenv("BILEVEL_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["bilevel", "data", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return Shown(int(ended.value.code or 0), *capsys.readouterr())

    return call


def test_list_shows_every_data_set_with_its_facts(run: Run, tmp_path: Path) -> None:
    shown = run("list")
    assert shown.code == 0, shown.err
    for origin in catalogue().values():
        for fact in (origin.name, *origin.facts(tmp_path).values(), origin.licence, origin.kind):
            assert fact in shown.out
    assert "60,000" in shown.out
    assert "60 / 20 / 20" in shown.out
    assert "missing: bilevel data get mnist" in shown.out
    assert list(tmp_path.iterdir()) == []


def test_path_prints_the_folder_alone_and_what_is_missing_aside(run: Run, tmp_path: Path) -> None:
    shown = run("path", "mnist")
    assert (shown.code, shown.out) == (0, f"{tmp_path / 'mnist'}\n")
    assert "train-images-idx3-ubyte.gz" in shown.err
    there = run("path", "digits")
    assert (Path(there.out.strip()) / "digits.csv.gz").is_file()
    assert there.err == ""


def test_get_of_what_is_there_says_where(run: Run) -> None:
    shown = run("get", "digits")
    assert shown.code == 0, shown.err
    assert "digits is complete in" in shown.out
    assert "train rows: 1,437; test rows: 360; features: 64; classes: 10" in shown.out


def test_get_of_what_cannot_be_downloaded_exits_with_2_and_says_what_to_obtain(
    run: Run, tmp_path: Path
) -> None:
    shown = run("get", "mini-imagenet")
    assert (shown.code, shown.out) == (2, "")
    assert "mini-imagenet cannot be downloaded freely" in shown.err
    assert str(tmp_path / "mini_imagenet") in shown.err
    assert "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_does_not_keep_the_others_from_the_list(run: Run, tmp_path: Path) -> None:
    (tmp_path / "omniglot").mkdir()
    for split in ("train", "test"):
        (tmp_path / "omniglot" / f"{split}.npz").write_text("no arrays")
    shown = run("list")
    assert shown.code == 0, shown.err
    assert "damaged" in shown.out
    refused = run("get", "omniglot")
    assert (refused.code, refused.out) == (2, "")
    assert "train.npz is damaged" in refused.err


def test_get_without_a_network_exits_with_2_and_says_what_to_put_where(
    run: Run, tmp_path: Path
) -> None:
    shown = run("get", "fashion-mnist")
    assert (shown.code, shown.out) == (2, "")
    assert str(tmp_path / "fashion-mnist") in shown.err
    for name in ("train-images", "train-labels", "t10k-images", "t10k-labels"):
        assert f"data/fashion/{name}" in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("action", ["get", "path"])
def test_an_unknown_name_exits_with_2(run: Run, action: str) -> None:
    shown = run(action, "cifar")
    assert shown.code == 2
    assert "no data set named 'cifar'" in shown.err


def test_help_teaches_by_example(run: Run) -> None:
    assert "bilevel data get mnist" in run("--help").out
    assert "bilevel data get fashion-mnist" in run("get", "--help").out


def test_the_bar_of_a_download_follows_what_pooch_reports() -> None:
    with Progress(disable=True) as progress:
        bar = DownloadBar(progress, "file.gz")
        task = progress.tasks[0]
        assert (task.description, task.total) == ("file.gz", None)
        bar.total = 0  # a server that does not tell
        assert task.total is None
        bar.total = 1500
        bar.update(1024)
        bar.update(1024)
        bar.reset()
        bar.update(bar.total)
        bar.close()
        assert task.finished
        assert task.completed == 1500
