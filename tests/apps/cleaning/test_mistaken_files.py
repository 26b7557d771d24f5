"""Files that are not what their names say, or hold what only some kinds can."""

from __future__ import annotations

import datetime
import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bilevel.apps.cleaning.columns import recognise
from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.given import File, Told
from bilevel.apps.cleaning.labels import column_of
from bilevel.apps.cleaning.sniffing import Style
from bilevel.apps.cleaning.writing import WRITTEN, write
from bilevel.errors import UserError

from .dirty_tables import Command, dirty

OLD_BOOK = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600
TYPES = pd.DataFrame(
    {
        "list": [["a"], [], ["a", "b"]],
        "bytes": [b"\xff\0", b"", None],
        "amount": [Decimal("1.50"), None, Decimal(7)],
        "day": [datetime.date(2024, 1, 2)] * 3,
        "when": pd.date_range("2024-01-02", periods=3, tz="Europe/Berlin"),
        "long": pd.to_timedelta([1, 2, 3], "min"),
        "mixed": [True, "x", 3],
        "maybe": pd.array([1, None, 3], dtype="Int64"),
        "kind": pd.Categorical(["=1+1", "b", "b"]),
        "huge": [2**70, 1, 2],
        "exact": [1234567.891, 0.1, 2.0],
        "label": ["007", "1.10", "1.1"],
    }
)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xlsx", OLD_BOOK, "with a password, or in the old format of Excel: open it"),
        ("t.xlsx", b"a,label\n1,x\n", "is not a workbook or a ZIP archive: if it is text"),
        ("t.csv", b"PK\x03\x04\0\0", r"is a workbook or a ZIP archive: rename it .* \.xlsx"),
        ("t.csv", b"\xef\xbb\xbf <!DOCTYPE html>", "is a web page or XML: open it"),
        ("t.txt", b"SQLite format 3\0", "is an SQLite database: rename it"),
        ("t.csv.gz", b"a,label\n1,x\n", "is not packed by gzip"),
        ("t.xls", OLD_BOOK, r"ends in '\.xls': save it as a file that ends in \.csv"),
        ("t", b"a,label\n1,x\n", "has no ending: save it"),
        ("t.csv", b'a,label\n1,"x\n2,y\n', "quotation mark in row 1 that is never closed"),
        ("t.jsonl", b'{"a": 1}\n{"a": \n', r"line 2 of \S+ is no JSON"),
        ("t.json", b"[1, 2]", "holds 1 where a row should be an object"),
        ("t.csv", b"a,b\n" + b"\x81" * 9, "is not written in cp1252 .*--encoding"),
    ],
)
def test_what_a_file_is_and_what_to_do_is_said(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("head", ["PAR1,label", "pk,label", "<b>,label", "%,label"])
def test_a_header_that_looks_a_little_like_a_sign_is_a_header(head: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{head}\n1,x\n2,y\n")
    assert read(tmp_path / "t.csv").frame.label.tolist() == ["x", "y"]


def test_utf_16_without_a_mark_is_read_in_either_order(tmp_path: Path) -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        (tmp_path / "t.csv").write_bytes("größe,label\n1,x\n2,y\n".encode(encoding))
        assert list(read(tmp_path / "t.csv").frame) == ["größe", "label"]


def test_failed_formulas_are_gaps_in_a_column_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("price;label\n#REF!;x\n2,5;y\n#DIV/0!;x\n#NV;x\n")
    found = read(tmp_path / "t.csv")
    assert found.frame.price.dropna().tolist() == [2.5]
    assert found.written.price.tolist() == ["#REF!", "2,5", "#DIV/0!", "#NV"]


def test_a_hidden_sheet_is_not_the_first_and_a_cover_is_named(tmp_path: Path) -> None:
    book = tmp_path / "t.xlsx"
    with pd.ExcelWriter(book) as writer:
        for name in ("secret", "data"):
            pd.DataFrame({"a": [1], "label": [name]}).to_excel(writer, sheet_name=name, index=False)
        pd.DataFrame({"Orders of 2024": []}).to_excel(writer, sheet_name="cover", index=False)
        writer.sheets["secret"].sheet_state = "hidden"
    assert read(book).frame.label.tolist() == ["data"]
    assert read(book, Told(sheet="secret")).frame.label.tolist() == ["secret"]
    with pytest.raises(UserError, match=r"no rows in sheet 'cover' of \['secret', 'data', 'cover'"):
        read(book, Told(sheet="cover"))


def test_an_answer_of_a_service_has_its_rows_inside(tmp_path: Path) -> None:
    rows = [
        {"note": "a\u2028b", "tags": ["x"], "label": "p"},
        {"note": "half \ud83d", "label": "q"},
    ]
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"count": 2, "data": rows}))
    found = read(file)
    assert found.written.note.tolist() == ["a\u2028b", "half ?"]
    write(found.written, tmp_path / "t.jsonl", found)
    assert read(tmp_path / "t.jsonl").written.tags.tolist()[0] == ["x"]
    assert read(tmp_path / "t.jsonl").written.note.tolist() == found.written.note.tolist()


def test_a_column_twice_cannot_hold_the_labels(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,label,label\n1,x,y\n2,y,x\n")
    with pytest.raises(UserError, match="several columns 'label': rename"):
        column_of(read(tmp_path / "t.csv"), "label")


def test_a_table_that_is_one_column_asks_for_the_separator(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a:label\n1:x\n2:y\n")
    with pytest.raises(UserError, match="what separates the columns by --separator"):
        column_of(read(tmp_path / "t.csv"), "label")
    assert list(read(tmp_path / "t.csv", Told(Style(separator=":"))).frame) == ["a", "label"]
    for style in (Style(separator="::"), Style(separator="\n"), Style(decimal="x")):
        with pytest.raises(UserError, match="must be"):
            read(tmp_path / "t.csv", Told(style))


@pytest.mark.parametrize("kind", WRITTEN)
def test_every_kind_of_cell_can_be_written_to_every_kind_of_file(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"t{kind}"
    write(TYPES, file, File(file, kind, TYPES, TYPES))
    found = read(file).written
    assert list(found) == list(TYPES)
    assert len(found) == 3
    assert found.label.tolist() == ["007", "1.10", "1.1"]
    assert found["kind"].astype(str).tolist() == ["'=1+1", "b", "b"]
    assert found.exact.astype(float).tolist() == [1234567.891, 0.1, 2.0]
    assert [str(value)[:10] for value in found.day] == ["2024-01-02"] * 3
    assert float(found.amount.iloc[0]) == 1.5


@pytest.mark.parametrize("kind", [".parquet", ".feather", ".db"])
def test_a_table_with_lists_and_bytes_is_learned_from_and_given_back(
    kind: str, tmp_path: Path
) -> None:
    file, names = tmp_path / f"t{kind}", ["bytes", "exact", "label"]
    part = TYPES[names if kind == ".db" else ["list", *names]].set_index("exact")
    if kind == ".parquet":
        part.to_parquet(file)
    elif kind == ".feather":
        part.reset_index().to_feather(file)
    else:
        with closing(sqlite3.connect(file)) as base:
            part.to_sql("rows", base)
    found = read(file)
    assert {column.name for column in recognise(found.frame)} >= {"bytes", "exact"}
    write(found.written, tmp_path / f"again{kind}", found)
    assert read(tmp_path / f"again{kind}").written["bytes"].tolist()[:2] == [b"\xff\0", b""]


def test_numbers_of_a_text_are_numbers_in_a_workbook_and_codes_are_not(tmp_path: Path) -> None:
    given = tmp_path / "t.csv"
    given.write_text("price;zip;gap;odd;label\n1.234,50;0123;7;n/a;1.10\n2,25;4567;;3;2.5\n")
    found = read(given)
    for kind in (".xlsx", ".parquet", ".db", ".jsonl"):
        write(found.written, tmp_path / f"t{kind}", found, ("label",))
        frame = read(tmp_path / f"t{kind}").written
        assert frame.price.tolist() == [1234.5, 2.25]
        assert frame.gap.iloc[0] == 7
        assert pd.isna(frame.gap.iloc[1])
        assert frame.zip.tolist() == ["0123", "4567"]
        assert frame.odd.tolist() == ["n/a", "3"]
        assert frame.label.tolist() == ["1.10", "2.5"]


def test_a_workbook_has_no_control_characters_and_readable_columns(tmp_path: Path) -> None:
    from openpyxl import load_workbook

    frame = pd.DataFrame({"no\x0bte": ["a\x00b" + "long " * 9], "label": ["x"]})
    like = File(tmp_path / "t.csv", ".csv", frame, frame)
    write(frame, tmp_path / "t.xlsx", like)
    sheet = load_workbook(tmp_path / "t.xlsx").active
    assert sheet["A2"].value == "a\ufffdb" + "long " * 9
    assert sheet.column_dimensions["A"].width > 40 > 8 > sheet.column_dimensions["B"].width
    assert sheet.freeze_panes == "A2"
    with pytest.raises(UserError, match="at most 32,767 characters"):
        write(frame.assign(label="x" * 40_000), tmp_path / "t.xlsx", like)


def test_work_is_kept_where_the_kind_of_file_cannot_hold_it(clean: Command) -> None:
    case = dirty(60)
    clean.write(train=case.train.assign(Flagged="no", note=["x" * 40_000, *["x"] * 59]))
    shown = clean("train.csv", "--output-format", "XLSX")
    assert shown.code == 0, shown.err
    assert "32,767 characters; it is in labels.csv instead" in " ".join(shown.err.split())
    found = pd.read_csv(clean.folder / "cleaned" / "labels.csv")
    assert list(found)[-1] == "flagged_"  # databases do not tell Flagged from flagged
    assert found.note.str.len().tolist() == [40_000, *[1] * 59]


def test_columns_and_annotators_that_are_named_twice(clean: Command) -> None:
    case = dirty(60)
    votes = {"ada": case.train.label, "bob": np.where(np.arange(60) % 9, case.train.label, "n/a")}
    clean.write(train=case.train.assign(**votes))
    shown = clean("train.csv", "--annotators", "label,ada,ada, bob,")
    assert shown.code == 0, shown.err
    assert "Right in about: label" in shown.out
    for option in ("--ignore", "--text", "--category"):
        shown = clean("train.csv", option, "label", "--force")
        assert (shown.code, "'label' is the column with the labels" in shown.err) == (2, True)
