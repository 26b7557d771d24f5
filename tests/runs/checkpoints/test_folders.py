"""A checkpoint folder: files of others stay, and an error costs no steps that were done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import bilevel
from bilevel.durable import sealed
from bilevel.durable.store import Store
from bilevel.errors import UserError
from bilevel.problem.examples import halves
from bilevel.problem.peers import Alone
from bilevel.runs.checkpoints.identity import check_agreement

from .kept_runs import PowerFailureError, assert_same, fail_at, kept


def test_files_that_others_put_there_stay(tmp_path: Path) -> None:
    for name in (".2024.notes.txt", ".7", "step-best.pt", "step-5.pt", ".bilevel-notes"):
        (tmp_path / name).write_text("mine")
    torch.save({"mine": 1}, tmp_path / "step-000000000099.pt")
    (tmp_path / "step-000000000098.pt").mkdir()
    (tmp_path / ".5.x").mkdir()
    (tmp_path / "step-000000000097.pt").symlink_to(tmp_path / "nowhere")
    before = {path.name for path in tmp_path.iterdir()}
    kept(tmp_path)
    kept(tmp_path, steps=8)
    assert before <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / ".7").read_text() == "mine"
    assert torch.load(tmp_path / "step-000000000099.pt", weights_only=True) == {"mine": 1}


def test_a_file_of_the_users_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "step-000000000000.pt").mkdir()
    with pytest.raises(UserError, match="was not written by bilevel"):
        kept(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "history.jsonl").write_text("my own notes, which are long enough\n")
    with pytest.warns(RuntimeWarning, match="history.jsonl was not written by bilevel"):
        kept(tmp_path / "other")
    assert "my own notes" in (tmp_path / "other" / "history.jsonl").read_text()


def test_a_pipe_in_the_place_of_the_history_is_not_waited_for(tmp_path: Path) -> None:
    kept(tmp_path)
    (tmp_path / "history.jsonl").unlink()
    os.mkfifo(tmp_path / "history.jsonl")
    with pytest.raises(UserError, match=r"no checkpoint in .* is whole"):
        kept(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"identity": None},
        {"past": None},
        {"past": {}},
        {"memories": 3},
        {"ending": {"status": "unheard of"}},
        {"best": {"value": 1}},
        {"format": 7},
    ],
    ids=str,
)
def test_malformed_content_is_one_sentence(change: dict[str, Any], tmp_path: Path) -> None:
    kept(tmp_path)
    newest = Store(tmp_path).files()[-1]
    sealed.write(newest, {**sealed.read(newest), **change})
    with pytest.raises(UserError) as refused:
        kept(tmp_path)
    assert "weights_only" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_callback_that_changes_the_working_directory_does_not_move_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    kept(Path("run"), callbacks=[lambda progress: os.chdir(elsewhere)])
    assert not list(elsewhere.iterdir())
    assert_same(kept(tmp_path / "run", callbacks=[pytest.fail]), kept(tmp_path / "whole"))


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_cannot_be_a_folders_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="checkpoint must be a folder's name, got"):
        bilevel.minimize(halves(), checkpoint=name)


def test_an_error_in_a_callback_keeps_the_steps_before_it(tmp_path: Path) -> None:
    with pytest.raises(PowerFailureError):
        kept(tmp_path, callbacks=[fail_at(5)], checkpoint_every=3600)
    assert sealed.read(Store(tmp_path).files()[-1])["past"]["state"]["step"] == 4
    assert_same(kept(tmp_path), kept(tmp_path / "whole"))


def test_an_error_in_a_loss_keeps_the_steps_before_it(tmp_path: Path) -> None:
    fails = [False]

    def inner(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if fails[0]:
            raise MemoryError
        return (y - x).square().sum()

    def fail(progress: bilevel.Progress) -> None:
        fails[0] = progress.record.step == 3

    problem = bilevel.Problem(lambda x, y: y.square().sum(), inner, torch.ones(1), torch.zeros(1))
    with pytest.raises(MemoryError):
        kept(tmp_path, problem, callbacks=[fail], checkpoint_every=3600)
    assert sealed.read(Store(tmp_path).files()[-1])["past"]["state"]["step"] == 3


def test_the_history_grows_and_is_not_written_again(tmp_path: Path) -> None:
    sizes: list[int] = []

    def look(progress: bilevel.Progress) -> None:
        files = Store(tmp_path).files()
        sizes.append(files[-1].stat().st_size)

    kept(tmp_path, steps=30, callbacks=[look])
    assert max(sizes[5:]) - min(sizes[5:]) < 200  # no record more than the last
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert len(lines) == 30  # a head, and all but the last


def test_a_history_that_was_altered_is_damage(tmp_path: Path) -> None:
    kept(tmp_path)
    log = tmp_path / "history.jsonl"
    log.write_text(log.read_text().replace('"step": 1', '"step": 7'))
    with pytest.raises(UserError, match=r"no checkpoint in .* is whole"):
        kept(tmp_path)


class Second(Alone):
    """Rank 1 of two, whose leader has other words."""

    rank, size = 1, 2

    def told(self, content: Any) -> Any:
        return {"seed": "0", "inner.ridge": "0.1"}


def test_ranks_that_disagree_are_told_in_what() -> None:
    check_agreement(Second(), {"seed": "0", "inner.ridge": "0.1"})
    with pytest.raises(UserError, match=r"rank 1 differs from rank 0 in inner.ridge .*was 0.1, is"):
        check_agreement(Second(), {"seed": "0", "inner.ridge": "0.5"})
    with pytest.raises(UserError, match=r"rank 1 differs from rank 0 in seed, other parts"):
        check_agreement(Second(), {"seed": "1", "inner.ridge": "0.1", "inner.more": "1"})


@pytest.mark.parametrize("content", ["", "mine\n", None], ids=["empty", "a text", "a history"])
def test_a_link_in_the_place_of_the_history_is_not_followed(
    content: str | None, tmp_path: Path
) -> None:
    place, other = tmp_path / "kept", tmp_path / "other.txt"
    if content is None:
        kept(tmp_path / "first", steps=3)
        other = tmp_path / "first/history.jsonl"
    else:
        other.write_text(content)
    before = other.read_bytes()
    place.mkdir()
    (place / "history.jsonl").symlink_to(other)
    with pytest.warns(RuntimeWarning, match="is a link: what it points to is not written to"):
        assert len(kept(place, steps=3).history) == 3
    assert other.read_bytes() == before
