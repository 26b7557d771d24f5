"""`bilevel clean` with bad input: a clear message, exit code 2, and nothing written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

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
        patch.setattr("bilevel.apps.cleaning.job.clean", None)  # refused before any work
        shown = clean(*arguments)
    assert (shown.code, shown.out) == (2, "")
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert everything(clean.folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.csv", *FILES[1:]), "there is no file absent.csv"),
        (("train.csv", "--trusted", "absent.csv"), "there is no file absent.csv"),
        ((".", *FILES[1:]), ". is a folder: name a CSV, Parquet or NPZ file in it"),
        (("/dev/null", *FILES[1:]), "/dev/null ends in '': give a file that ends in .csv"),
        ((*FILES, "--label", "kind"), "no column 'kind'; it has ['width', 'height', 'colour', 'la"),
        ((*FILES, "--drop", "id"), "train.csv and trusted.csv have no column 'id' to drop"),
        ((*FILES, "--categorical", "id"), "--categorical names columns that train.csv lacks"),
        ((*FILES, "--drop", "width", "--drop", "height", "--drop", "colour"), "no columns besides"),
        (("train.csv",), "no trusted rows: give a file with --trusted, or --trusted-column"),
        (("train.csv", "--trusted-column", "ok"), "train.csv has no column 'ok'"),
        (("train.csv", "--trusted-column", "label"), "no column 'label' to mark trusted rows"),
        ((*FILES, "--trusted-column", "colour"), "--trusted or with --trusted-column, not both"),
        (
            (*FILES, "--trusted-fraction", "0.5"),
            "0.5 applies to the rows that --trusted-column marks",
        ),
        ((*FILES, "--algorithm", "adam"), "no algorithm 'adam'; there are aid-bio, aid-cg"),
        ((*FILES, "--ridge", "nan"), "--ridge"),
        ((*FILES, "--ridge", "inf"), "--ridge must be a positive number, at most 1e+06, got inf"),
        ((*FILES, "--ridge", "1e300"), "--ridge must be a positive number, at most 1e+06"),
        ((*FILES, "--seed", str(2**64)), "--seed"),
        ((*FILES, "--steps", "0"), "--steps"),
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
        (put("label", "dog"), same, "do not occur in trusted.csv: ['dog']; add trusted rows"),
        (put("label", None), same, "train.csv has no label in 1 rows (the first is row 4)"),
        (same, put("label", "NA"), "trusted.csv has no label in 1 rows (the first is row 4)"),
        (lambda f: f.assign(label="ant"), lambda f: f.assign(label="ant"), "only one class, 'ant'"),
        (lambda f: f.assign(width=None), same, "'width' of train.csv has no values at all"),
        (same, lambda f: f.assign(width=None), "'width' of trusted.csv has no values at all"),
        (
            put("width", "wide"),
            same,
            "text in 1 rows (first in row 4: 'wide'): correct them, or use",
        ),
        (same, put("width", "wide"), "'width' of trusted.csv holds numbers, but text in 1 rows"),
        (same, lambda f: f.assign(width="wide"), "numbers in train.csv, but text in trusted.csv"),
        (put("width", "-inf"), same, "infinite or huge numbers (first in row 4: -inf)"),
        (same, put("height", 1e300), "huge numbers (first in row 4: 1e+300)"),
        (lambda f: f.head(0), same, "train.csv has a header but no rows"),
        (same, lambda f: f.head(0), "trusted.csv has a header but no rows"),
        (
            lambda f: f.assign(id=1),
            lambda f: f.assign(key=1),
            "different columns: only the first has ['id'], only the second ['key']; use --drop",
        ),
        (
            lambda f: pd.concat([f, f[["width"]]], axis=1),
            same,
            "train.csv has more than one column named 'width'",
        ),
    ],
)
def test_wrong_tables_are_refused(
    clean: Command, train: Change, trusted: Change, message: str
) -> None:
    clean.write(train=train(TRAIN), trusted=trusted(TRUSTED))
    assert_refused(clean, message, *FILES)


@pytest.mark.parametrize(
    ("marks", "options", "message"),
    [
        ([False] * 30, (), "no trusted rows: column 'ok' marks 0 rows"),
        ([None] * 30, (), "no trusted rows: column 'ok' marks 0 rows"),
        ([True] * 30, (), "column 'ok' marks all rows: none are left to clean"),
        (["yes", "perhaps"] * 15, (), "by true or false, but holds ['perhaps']"),
        ([0, 2] * 15, (), "by true or false, but holds ['2']"),
        ([True, False] * 15, ("--trusted-fraction", "0"), "--trusted-fraction 0 takes none"),
        ([True, False] * 15, ("--trusted-fraction", "nan"), "--trusted-fraction"),
        ([True, False] * 15, ("--trusted-fraction", "2"), "--trusted-fraction"),
        (
            [True, *[False] * 29],
            (),
            "do not occur in the trusted rows of train.csv: ['bee', 'cat']",
        ),
    ],
)
def test_wrong_marks_are_refused(
    clean: Command, marks: list[Any], options: tuple[str, ...], message: str
) -> None:
    clean.write(train=TRAIN.assign(label=TRUSTED.label, ok=marks))
    assert_refused(clean, message, "train.csv", "--trusted-column", "ok", *options)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.csv", b"", "bad.csv is empty"),
        ("bad.parquet", b"", "bad.parquet is empty"),
        ("bad.csv", b"\n \n", "bad.csv"),
        ("bad.csv", b"a,label\n1,x\n2,y,z\n", "bad.csv cannot be read as csv"),
        ("bad.csv", b"a,label\n1,2,x\n3,4,y\n", "bad.csv cannot be read as csv: Length of header"),
        ("bad.csv", b"a,label\n1,\xff\xfe\n", "bad.csv cannot be read as csv: 'utf-8' codec"),
        ("bad.csv", b"a;label\n1;x\n", "bad.csv has no column 'label'; it has ['a;label']"),
        ("bad.parquet", b"PAR1 and so on", "bad.parquet cannot be read as parquet"),
        ("bad.npz", b"PK\x03\x04 and so on", "bad.npz is not a valid NPZ file"),
        ("bad.npz", b"nothing of the kind", "bad.npz is not a valid NPZ file"),
        ("bad.json", b"[]", "bad.json ends in '.json': give a file that ends in .csv, .parquet"),
    ],
)
def test_wrong_files_are_refused(clean: Command, name: str, content: bytes, message: str) -> None:
    (clean.folder / name).write_bytes(content)
    assert_refused(clean, message, name, *FILES[1:])
    assert_refused(clean, message, "train.csv", "--trusted", name)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "must hold one array of features and the labels, got []"),
        ({"label": np.zeros(3)}, "must hold one array of features and the labels, got ['label']"),
        ({"X": np.zeros((3, 2)), "label": np.zeros(2)}, "different numbers of rows: {'X': 3"),
        ({"X": np.zeros((3, 2)), "label": np.float64(1)}, "different numbers of rows"),
        ({"X": np.zeros((3, 2)), "Z": np.ones((3, 2)), "label": np.zeros(3)}, "got ['X', 'Z'"),
        (
            {"X": np.zeros((3, 2)), "y": np.zeros(3)},
            "'label'; it has ['X[0]', 'X[1]', 'y']",
        ),
        ({"X": np.zeros((3, 1)), "X[0]": np.ones(3), "label": np.zeros(3)}, "named 'X[0]'"),
    ],
)
def test_wrong_archives_are_refused(clean: Command, arrays: dict[str, Any], message: str) -> None:
    np.savez(clean.folder / "bad.npz", **arrays)
    assert_refused(clean, message, "bad.npz", *FILES[1:])


class Trap:
    """An object whose pickle makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_an_archive_with_a_broken_member_is_refused(clean: Command) -> None:
    file = clean.folder / "bad.npz"
    np.savez(file, X=np.zeros((30, 2)), label=np.zeros(30))
    content = bytearray(file.read_bytes())
    content[300] ^= 255
    file.write_bytes(content)
    assert_refused(clean, "bad.npz cannot be read as npz: Bad CRC-32", "bad.npz", *FILES[1:])


def test_a_pickle_in_an_archive_is_refused_and_never_run(clean: Command) -> None:
    trap = clean.folder / "trapped"
    labels = np.array([Trap(trap)] * 3, dtype=object)
    np.savez(clean.folder / "bad.npz", X=np.zeros((3, 2)), label=labels)
    assert_refused(clean, "store text and numbers, not Python objects", "bad.npz", *FILES[1:])
    assert not trap.exists()
    with np.load(clean.folder / "bad.npz", allow_pickle=True) as file:
        assert file["label"].shape == (3,)  # the trap does work: the second mkdir fails
    assert trap.exists()


# Work that does not come to its end


@pytest.mark.parametrize("where", ["clean", "write_report"])
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
        (("train.csv", "--trusted", "one.csv"), "error: labels of train.csv that do not occur"),
    ],
)
def test_the_command_itself_exits_with_2_and_shows_no_stack(
    clean: Command, arguments: tuple[str, ...], message: str
) -> None:
    clean.write(one=TRUSTED.iloc[:1])
    before = everything(clean.folder)
    command = [sys.executable, "-m", "bilevel", "clean", *arguments]
    ended = subprocess.run(
        [*command, "--label", "label", "--output", "cleaned"],
        cwd=clean.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(message)
    assert "Traceback" not in ended.stderr
    assert everything(clean.folder) == before
