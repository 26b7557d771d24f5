"""`bilevel clean` with bad input: a clear message, exit code 2, and nothing written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ...truth import forked
from .dirty_tables import Command, dirty

TRAIN, TRUSTED = dirty(rows=30, trusted=30)[:2]
FILES = ("train.csv", "--trusted", "trusted.csv")


@pytest.fixture(autouse=True)
def good_tables(clean: Command) -> None:
    clean.write(train=TRAIN, trusted=TRUSTED)


def everything(folder: Path) -> list[tuple[str, int]]:
    """All that is there, hidden files too, and when it was changed."""
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def assert_refused(clean: Command, message: str, *arguments: str) -> None:
    before = everything(clean.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bilevel.apps.cleaning.job.find_wrong_labels", None
        )  # refused before any work
        shown = clean(*arguments)
    assert (shown.code, shown.out) == (2, "")
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert everything(clean.folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.csv", *FILES[1:]), "there is no file absent.csv"),
        (("train.csv", "--trusted", "absent.csv"), "'absent.csv' is neither a file nor a column"),
        ((".", *FILES[1:]), ". is a folder: name a file in it"),
        (("/dev/null", *FILES[1:]), "/dev/null is a device: name a file"),
        ((*FILES, "--label", "kind"), "no column 'kind'; it has ['width', 'height', 'colour', 'la"),
        ((*FILES, "--ignore", "id"), "there is no column 'id': there are ['width', 'height'"),
        ((*FILES, "--category", "id"), "there is no column 'id'"),
        (
            (*FILES, "--ignore", "width", "--ignore", "height", "--ignore", "colour"),
            "no column to learn from besides the labels",
        ),
        (("train.csv", "--trusted", "ok"), "'ok' is neither a file nor a column of train.csv"),
        ((*FILES, "--output-format", "doc"), "'doc' is unknown: choose from csv, tsv"),
        ((*FILES, "--encoding", "klingon"), "there is no encoding 'klingon'"),
        ((*FILES, "--seed", str(2**64)), "--seed"),
        ((*FILES, "--seed", "-1"), "--seed"),
        ((*FILES, "--output", "train.csv"), "the output train.csv is a file: name a folder"),
        ((*FILES, "--output", "train.csv/cleaned"), "cannot write to train.csv/cleaned"),
        ((*FILES, "--output", "/proc/cleaned"), "cannot write to /proc/cleaned"),
        ((*FILES, "--output", "x" * 300), "File name too long"),
        ((*FILES, "--output", "."), "the folder . is not empty: choose another, or use --force"),
    ],
)
def test_wrong_arguments_are_refused(
    clean: Command, arguments: tuple[str, ...], message: str
) -> None:
    assert_refused(clean, message, *arguments)


Change = Callable[[pd.DataFrame], pd.DataFrame]


def put(column: str, value: Any, row: int = 4) -> Change:
    """One cell changed; rows count from 1."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        values = frame[column].astype(object)
        values.iloc[row - 1] = value
        return frame.assign(**{column: values})

    return change


def same(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


@pytest.mark.parametrize(
    ("train", "trusted", "message"),
    [
        (same, put("label", "dog"), "do not occur in train.csv: ['dog']; there are ['ant'"),
        (
            lambda f: f.assign(label=" "),
            same,
            "train.csv has no label in any row of column 'label'",
        ),
        (same, put("label", " "), "trusted.csv has no label in row 4: trusted rows need their lab"),
        (lambda f: f.assign(label="ant"), lambda f: f.assign(label="ant"), "only one class, 'ant'"),
        (
            lambda f: f.assign(label=range(30)),
            lambda f: f.assign(label=range(30)),
            "30 different labels in 60 rows",
        ),
        (lambda f: f.head(0), same, "train.csv has a header but no rows"),
        (same, lambda f: f.head(0), "trusted.csv has a header but no rows"),
        (
            lambda f: f.assign(id=1),
            lambda f: f.assign(key=1),
            "trusted.csv lacks columns of train.csv: ['id']; add them, or use --ignore",
        ),
        (
            same,
            lambda f: f.assign(width="wide"),
            "trusted.csv has no numbers in columns that are numbers in train.csv: ['width']",
        ),
    ],
)
def test_wrong_tables_are_refused(
    clean: Command, train: Change, trusted: Change, message: str
) -> None:
    clean.write(train=train(TRAIN), trusted=trusted(TRUSTED))
    assert_refused(clean, message, *FILES)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ([True] * 30, "column 'ok' marks all rows: none are left to judge"),
        (["yes", "perhaps"] * 15, "by yes or no, but holds ['perhaps']"),
        ([0, 2] * 15, "by yes or no, but holds ['2']"),
    ],
)
def test_wrong_marks_are_refused(clean: Command, marks: list[Any], message: str) -> None:
    clean.write(train=TRAIN.assign(label=TRUSTED.label, ok=marks))
    assert_refused(clean, message, "train.csv", "--trusted", "ok")


def test_rows_that_are_all_trusted_leave_nothing_to_judge(clean: Command) -> None:
    clean.write(train=TRUSTED)
    assert_refused(clean, "every row of train.csv is among the trusted rows", *FILES)


@pytest.mark.parametrize(
    ("rows", "message"), [([99], "row 99: there are rows 1 to 30"), ([0], "row 0")]
)
def test_decisions_on_rows_that_are_not_there_are_refused(
    clean: Command, rows: list[int], message: str
) -> None:
    clean.write(decisions=pd.DataFrame({"row": rows, "label": "ant", "decision": "right"}))
    assert_refused(clean, message, "train.csv", "--trusted", "decisions.csv")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.csv", b"", "bad.csv is empty"),
        ("bad.parquet", b"", "bad.parquet is empty"),
        ("bad.csv", b"\n \n", "bad.csv is empty"),
        ("bad.csv", b"a,label\n1,x\n2,y,z\n", "bad.csv has 3 cells in line 3, but a header of 2"),
        ("bad.csv", b"a,label\n1,2,x\n3,4,y\n", "rows with more cells than its header has names"),
        ("bad.csv.gz", b"no gzip", "bad.csv.gz is not packed by gzip"),
        ("bad.zip", b"PK\x03\x04", "bad.zip cannot be read as zip"),
        ("bad.xlsx", b"PK\x03\x04", "bad.xlsx cannot be read as xlsx"),
        ("bad.db", b"SQLite format 3\0", "bad.db cannot be read as db"),
        ("bad.jsonl", b"{", "line 1 of bad.jsonl is no JSON"),
        ("bad.parquet", b"PAR1\x15 and so on", "bad.parquet cannot be read as parquet"),
        ("bad.npz", b"PK\x03\x04", "bad.npz ends in '.npz': save it as a file that ends in .csv"),
        ("bad.json", b"[{]", "line 1 of bad.json is no JSON"),
        ("bad.json", b"[]", "bad.json has a header but no rows"),
    ],
)
def test_wrong_files_are_refused(clean: Command, name: str, content: bytes, message: str) -> None:
    (clean.folder / name).write_bytes(content)
    assert_refused(clean, message, name, *FILES[1:])
    assert_refused(clean, message, "train.csv", "--trusted", name)


# Work that does not come to its end


@pytest.mark.parametrize("where", ["find_wrong_labels", "write_report"])
def test_an_interrupted_run_leaves_nothing(
    clean: Command, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"bilevel.apps.cleaning.job.{where}", interrupted)
    before = everything(clean.folder)
    shown = clean(*FILES, "--output", "new/cleaned")
    assert shown.code not in (0, 2)
    assert "Traceback" not in shown.err
    assert everything(clean.folder) == before


def test_a_full_disk_is_an_error_that_leaves_the_old_results(
    clean: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    old = clean.folder / "cleaned" / "labels.csv"
    old.parent.mkdir()
    old.write_text("old")
    monkeypatch.setattr("bilevel.apps.cleaning.job.write_report", full)
    shown = clean(*FILES, "--force")
    assert shown.code == 2
    assert "cannot write to cleaned ([Errno 28] No space left on device)" in shown.err
    assert [path.name for path in old.parent.iterdir()] == ["labels.csv"]
    assert old.read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.csv", "--trusted", "trusted.csv"), "error: there is no file absent.csv"),
        (("train.csv", "--trusted", "one.csv"), "error: labels of one.csv that do not occur"),
    ],
)
def test_the_command_itself_exits_with_2_and_shows_no_stack(
    clean: Command, arguments: tuple[str, ...], message: str
) -> None:
    clean.write(one=TRUSTED.iloc[:1].assign(label="dog"))
    before = everything(clean.folder)
    words = ("-m", "bilevel", "clean", *arguments, "--label", "label", "--output", "cleaned")
    ended = forked.begin(clean.folder, *words).end()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(message)
    assert "Traceback" not in ended.err
    assert everything(clean.folder) == before
