"""`bilevel few-shot train` with wrong settings: a clear message, exit code 2, nothing written."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bilevel.apps.few_shot import training_job
from bilevel.apps.few_shot.methods import find

from .few_shot_pictures import SMALL, Command, small

ITD = find("itd-bio").defaults


@pytest.fixture
def few_shot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.setattr(training_job, "write_training_page", lambda *_: None)  # takes its time
    return Command(tmp_path, monkeypatch, capsys)


def everything(folder: Path) -> list[tuple[str, int]]:
    """All that is there, hidden files too, and when it was changed."""
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def assert_refused(few_shot: Command, message: str, *arguments: str) -> None:
    before = everything(few_shot.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bilevel.apps.few_shot.training.minimize", None)  # refused before any work
        shown = few_shot("train", *arguments)
    assert (shown.code, shown.out) == (2, "")
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert everything(few_shot.folder) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "cifar"), "'cifar', and no such folder; there are fc100, mini-imagenet, "),
        (("--data", "mnist"), "no image set named 'mnist'"),
        (
            ("--algorithm", "adam"),
            "no few-shot algorithm 'adam': choose one of itd-bio, aid-bio, aid-bio-",
        ),
        (("--ways", "1"), "--ways"),
        (("--ways", "5"), "--ways 5 is more than the 4 validation classes of fc100"),
        (("--ways", "6"), "--ways 6 is more than the 5 train classes of fc100"),
        (("--shots", "0"), "--shots"),
        (("--shots", "9"), "shots = 9 and queries = 2 need 11 images a class, but class 'c0' has"),
        (("--queries", "0"), "--queries"),
        (("--batch", "0"), "--batch"),
        (("--steps", "0"), "--steps"),
        (("--seconds", "0"), "--seconds must be a positive number, got 0.0"),
        (("--seconds", "inf"), "--seconds must be a positive number, got inf"),
        (("--seconds", "nan"), "--seconds must be a positive number, got nan"),
        (("--inner-steps", "0"), "--inner-steps"),
        (("--inner-lr", "0"), "itd-bio cannot use"),
        (("--inner-lr", "nan"), "lr must be a positive number, got nan"),
        (("--outer-lr", "-1"), "outer_lr must be a positive number, got -1.0"),
        (("--ridge", "-0.1"), "ridge must be a number of at least 0, got -0.1"),
        (("--cg-steps", "3"), "itd-bio has no --cg-steps; its options are --inner-steps, "),
        (("--growth", "3"), "itd-bio has no --growth"),
        (("--algorithm", "aid-bio-increasing", "--inner-steps", "3"), "has no --inner-steps"),
        (("--algorithm", "anil", "--ridge", "0.1"), "anil has no --ridge"),
        (("--algorithm", "maml", "--ridge", "0.1"), "maml has no --ridge"),
        (("--algorithm", "aid-bio", "--cg-steps", "0"), "--cg-steps"),
        (("--algorithm", "aid-bio-increasing", "--growth", "0"), "c must be a positive number"),
        (("--filters", "0"), "--filters"),
        (("--seed", "-1"), "--seed"),
        (("--validate-every", "0"), "--validate-every"),
        (("--validation-tasks", "1"), "--validation-tasks"),
        (("--threads", "0"), "--threads"),
        (("--output", "data/fc100/train.npz"), "the output data/fc100/train.npz is a file"),
        (("--output", "data/fc100/train.npz/run"), "cannot write to data/fc100/train.npz/run"),
        (("--output", "/proc/run"), "cannot write to /proc/run"),
        (("--output", "x" * 300), "File name too long"),
        (("--output", "."), "the folder . is not empty, and holds no few-shot training"),
    ],
)
def test_wrong_settings_are_refused(
    few_shot: Command, options: tuple[str, ...], message: str
) -> None:
    assert_refused(few_shot, message, *small(*options))


def test_images_that_are_not_there_are_asked_for_before_the_folder_is_made(
    few_shot: Command,
) -> None:
    path = few_shot.folder / "data/fc100/validation.npz"
    path.write_bytes(path.read_bytes()[:100])
    assert_refused(few_shot, "validation.npz is damaged", *SMALL)


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (("--ways", "2"), "--ways 2 (there: 3)"),
        (("--shots", "3"), "--shots 3 (there: 2)"),
        (("--queries", "3"), "--queries 3 (there: 2)"),
        (("--batch", "3"), "--batch 3 (there: 2)"),
        (("--filters", "5"), "--filters 5 (there: 4)"),
        (("--seed", "1"), "--seed 1 (there: 0)"),
        (("--inner-lr", "0.5"), f"--inner-lr 0.5 (there: {ITD['inner_lr']})"),
        (("--validate-every", "1"), "--validate-every 1 (there: 2)"),
        (("--validation-tasks", "2"), "--validation-tasks 2 (there: 3)"),
        (
            ("--algorithm", "itd-bio-random-head"),
            "--algorithm itd-bio-random-head (there: itd-bio), --ridge none (there: "
            f"{ITD['ridge']})",
        ),
    ],
)
def test_other_settings_in_the_same_folder_are_refused_by_name(
    few_shot: Command, started: Path, options: tuple[str, ...], difference: str
) -> None:
    assert_refused(few_shot, f"other settings: {difference}.", *small(*options))


@pytest.fixture
def started(few_shot: Command) -> Path:
    """The folder of a training that has not kept its first step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bilevel.cli.bars.TrainingBar.stepped", _stop)
        assert few_shot("train", *SMALL).code == 130
    return few_shot.folder / "run"


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_training_whose_checkpoints_are_all_damaged_is_refused(
    few_shot: Command, started: Path
) -> None:
    (file,) = (started / "checkpoint").iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    assert_refused(
        few_shot, "no checkpoint in run/checkpoint is whole: choose another folder", *SMALL
    )


@pytest.mark.parametrize("file", ["settings.json", "last.pt"])
def test_no_other_file_is_needed_to_go_on(few_shot: Command, started: Path, file: str) -> None:
    (started / file).write_text("{")
    few_shot.train("--steps", "2")
    assert few_shot.json("run/settings.json")["limits"]["steps"] == 2
    assert few_shot.content()["step"] == 2


def test_a_training_that_ended_before_its_first_checkpoint_begins(
    few_shot: Command, started: Path
) -> None:
    shutil.rmtree(started / "checkpoint")
    few_shot.train("--steps", "2")


def test_a_full_disk_is_an_error_that_leaves_the_last_checkpoint(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_shot.train("--steps", "2")
    before = (few_shot.folder / "run/last.pt").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("bilevel.durable.files.os.fsync", full)
        shown = few_shot("train", *SMALL, "--steps", "4")
    assert shown.code == 2
    assert "cannot write to run ([Errno 28] No space left on device): make room" in shown.err
    assert (few_shot.folder / "run/last.pt").read_bytes() == before
    assert not list((few_shot.folder / "run").glob(".*"))
    few_shot.train("--steps", "4")
