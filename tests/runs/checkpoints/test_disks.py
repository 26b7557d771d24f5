"""Checkpoints that are damaged, and disks that are full or cannot be written to."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import bilevel
from bilevel.durable import sealed
from bilevel.durable.store import Store
from bilevel.errors import UserError

from ...apps.few_shot import few_shot_pictures
from .kept_runs import PowerFailureError, assert_same, fail_at, kept

# Damage


def test_every_altered_byte_and_every_length_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    sealed.write(file, {"x": torch.arange(3)})
    good = file.read_bytes()
    for place in range(0, len(good), 7):
        file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(sealed.DamagedError):
            sealed.read(file)
    for length in range(0, len(good), 97):
        file.write_bytes(good[:length])
        with pytest.raises(sealed.DamagedError):
            sealed.read(file)


@pytest.mark.parametrize("damage", [lambda data: data[:-200], lambda data: data[:500] + b"?"])
def test_if_the_newest_is_damaged_the_one_before_it_is_used(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    with pytest.raises(PowerFailureError):
        kept(tmp_path, callbacks=[fail_at(5)])
    newest = Store(tmp_path).files()[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    steps: list[int] = []
    with pytest.warns(RuntimeWarning, match=r"000004.pt is damaged .*: the one before it is used"):
        result = kept(tmp_path, callbacks=[lambda progress: steps.append(progress.record.step)])
    assert steps == [4, 5, 6]
    assert_same(result, kept(tmp_path / "whole"))
    assert newest.with_suffix(".damaged").exists()


def test_if_all_are_damaged_nothing_is_begun_anew(tmp_path: Path) -> None:
    kept(tmp_path)
    for file in Store(tmp_path).files():
        file.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(UserError, match=r"no checkpoint in .* is whole: choose another folder"):
            kept(tmp_path, callbacks=[pytest.fail])


# Disks


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_written_is_an_error_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=r"cannot write checkpoints to .*file"):
            kept(folder, callbacks=[pytest.fail])
    monkeypatch.setattr("bilevel.durable.files.os.fsync", full)
    with pytest.raises(UserError, match=r"cannot write checkpoints to .*No space left"):
        kept(tmp_path / "full", callbacks=[pytest.fail])


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(progress: bilevel.Progress) -> None:
        if progress.record.step in (2, 3):
            monkeypatch.setattr("bilevel.durable.files.os.fsync", full)
        else:
            monkeypatch.undo()
        if progress.record.step == 4:
            steps = [sealed.read(file)["past"]["state"]["step"] for file in Store(tmp_path).files()]
            assert steps == [0, 1]  # as they were before the disk was full

    with pytest.warns(RuntimeWarning, match=r"after step [23] could not be written .*No space"):
        result = kept(tmp_path, callbacks=[fill])
    assert_same(result, kept(tmp_path / "whole"))
    assert_same(result, kept(tmp_path, callbacks=[pytest.fail]))


@pytest.mark.parametrize("end", [0, 100, None], ids=["emptied", "cut", "removed"])
def test_a_history_that_is_lost_during_a_run_is_written_anew(
    end: int | None, tmp_path: Path
) -> None:
    folder, whole = tmp_path / "run", kept(tmp_path / "whole", steps=8)

    def lose(progress: bilevel.Progress) -> None:
        if progress.record.step == 4:
            file = folder / "history.jsonl"
            file.unlink() if end is None else os.truncate(file, end)

    kept(folder, callbacks=[lose])
    assert_same(whole, kept(folder, steps=8))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 16 KB: there is room for the first checkpoint, and not for a second."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)]
    try:
        subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no disk can be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_real_disk_without_room_is_reported_before_any_work(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(bytes(14000))
    with pytest.raises(UserError, match=r"cannot write checkpoints to .*No space left"):
        kept(small_disk / "run", callbacks=[pytest.fail])
    assert not list((small_disk / "run").iterdir())


def test_on_a_real_disk_that_gets_full_the_run_goes_on_and_can_go_on_later(
    small_disk: Path, tmp_path: Path
) -> None:
    whole = kept(tmp_path / "whole")
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert_same(kept(small_disk / "run"), whole)
    assert [file.name for file in Store(small_disk / "run").files()] == ["step-000000000000.pt"]
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    assert_same(kept(small_disk / "run"), whole)


def test_a_damaged_training_goes_on_from_the_model_before_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few_shot = few_shot_pictures.Command(tmp_path, monkeypatch, capsys)
    few_shot.train("--steps", "6", "--output", "whole")
    for steps in ("2", "4"):  # each end is kept
        few_shot.train("--steps", steps)
    last = Store(tmp_path / "run" / "checkpoint").files()[-1]
    last.write_bytes(last.read_bytes()[:-1000])
    with pytest.warns(RuntimeWarning, match=r"000004.pt is damaged.*: the one before it is used"):
        shown = few_shot.train("--steps", "6")
    assert "continuing from step 2" in shown.err
    assert torch.equal(few_shot.content()["x"], few_shot.content("whole/last.pt")["x"])
    assert few_shot.history() == few_shot.history("whole")
