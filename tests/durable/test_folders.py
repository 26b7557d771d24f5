"""Output folders: results change as a whole, and killed runs leave nothing for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bilevel.durable import folders
from bilevel.durable.folders import check_folder, filled
from bilevel.durable.lock import locked

KILLED = """
import os, signal, sys
from pathlib import Path
from bilevel.durable.folders import filled
with filled(Path(sys.argv[1])) as draft:
    (draft / "labels.csv").write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def put(output: Path, text: str, *names: str) -> None:
    output.mkdir(exist_ok=True)
    for name in names:
        (output / name).write_text(text)


def content(output: Path) -> dict[str, str]:
    files = (file for file in output.rglob("*") if file.is_file())
    return {str(file.relative_to(output)): file.read_text() for file in files}


def test_a_draft_of_a_killed_process_is_removed_by_the_next_and_a_living_ones_is_not(
    tmp_path: Path,
) -> None:
    output = tmp_path / "cleaned"
    died = subprocess.run([sys.executable, "-c", KILLED, str(output)], check=False)
    assert died.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob(".bilevel-*")
    with locked(left):
        check_folder(output, force=False)
        assert left.exists()
    mine = tmp_path / ".bilevel-notes"
    mine.mkdir()
    check_folder(output, force=False)
    assert list(tmp_path.glob(".bilevel-*")) == [mine]


@pytest.mark.parametrize("swaps", [True, False])
def test_old_results_give_way_to_new_ones_and_other_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    output = tmp_path / "cleaned"
    put(output, "old", "labels.csv", "report.html", "notes.txt")
    put(output / "kept", "old", "a.txt")
    if not swaps:
        monkeypatch.setattr(folders, "_swapped", lambda one, other: False)
    with filled(output) as draft:
        put(draft, "new", "labels.csv", "report.html", "model.npz")
    new = dict.fromkeys(("labels.csv", "report.html", "model.npz"), "new")
    assert content(output) == {**new, "notes.txt": "old", "kept/a.txt": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["cleaned"]


@pytest.mark.parametrize("swaps", [True, False])
def test_a_kill_between_two_files_never_mixes_old_and_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    output, moves = tmp_path / "cleaned", []
    replace = os.replace

    def killed(one: Path, other: Path) -> None:
        moves.append(other)
        if len(moves) == 2:
            raise KeyboardInterrupt
        replace(one, other)

    put(output, "old", "labels.csv", "report.html", "model.npz")
    monkeypatch.setattr(os, "replace", killed)
    if not swaps:
        monkeypatch.setattr(folders, "_swapped", lambda one, other: False)
    try:
        with filled(output) as draft:
            put(draft, "new", "labels.csv", "report.html", "model.npz")
    except KeyboardInterrupt:
        assert not swaps
    assert set(content(output).values()) == {"new"}


def test_a_folder_in_which_somebody_works_is_not_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "old", "labels.csv")
    before = tmp_path.stat().st_ino
    with filled(Path()) as draft:
        put(draft, "new", "labels.csv")
    assert (content(tmp_path), tmp_path.stat().st_ino) == ({"labels.csv": "new"}, before)
