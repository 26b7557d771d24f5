"""Files as people have them: read rightly, said aloud, and written back in kind."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.given import File, Told
from bilevel.apps.cleaning.labels import column_of
from bilevel.apps.cleaning.sniffing import Style
from bilevel.apps.cleaning.writing import write
from bilevel.errors import UserError

from .dirty_tables import Command, dirty

FRAME = pd.DataFrame(
    {
        "größe": [1.5, 1234.25, None],
        "stück": [3, 2000, 7],
        "note": ['a "quoted"\nline; with, all', "–", "x"],
        "label": ["007", "1.10", "NA"],
    }
)
KINDS = (".csv", ".tsv", ".csv.gz", ".xlsx", ".parquet", ".feather", ".jsonl", ".db")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_back(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"t{kind}"
    write(FRAME, file, File(file, kind, FRAME, FRAME))
    found = read(file)
    assert list(found.frame) == list(FRAME)
    assert found.frame["größe"].tolist()[:2] == [1.5, 1234.25]
    assert found.written.label.tolist() == FRAME.label.tolist()
    assert found.frame.index.tolist() == [1, 2, 3]
    assert "3 rows, 4 columns" in found.words


GERMAN = 'größe;stück;note;label\n1,5;3;"a\nb";007\n1.234,25;2.000;–;1.10\n;7.500;x;NA\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_a_german_spreadsheet_is_read_as_it_is_meant(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(GERMAN.encode(encoding))
    found = read(file)
    assert list(found.frame) == ["größe", "stück", "note", "label"]
    assert found.frame["größe"].tolist()[:2] == [1.5, 1234.25]
    assert found.frame["stück"].tolist() == [3, 2000, 7500]
    assert found.written["größe"].tolist() == ["1,5", "1.234,25", ""]
    assert found.style == Style(encoding, ";", ",")
    assert "separated by semicolons, decimal commas" in found.words


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,234", "12,345,678", "5"], [1234, 12345678, 5]),
        (["1,234.50", "2.25", "-3"], [1234.5, 2.25, -3]),
        (["€ 5.50", "€ 1'200.00", "€ 3"], [5.5, 1200, 3]),
        (["12 %", "7 %", "100 %"], [12, 7, 100]),
        (["(1,234.50)", "$2.25", "3.00-"], [-1234.5, 2.25, -3]),
        (["2.5 kg", "1,200kg", "3 kg"], [2.5, 1200, 3]),
        (["EUR 3.50", "EUR 1,200.00", "EUR 7"], [3.5, 1200, 7]),
    ],
)
def test_numbers_in_other_spellings_are_numbers(
    cells: list[str], numbers: list[float], tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    pd.DataFrame({"price": cells, "label": ["a", "b", "a"]}).to_csv(file, index=False)
    assert read(file).frame.price.tolist() == numbers


def test_another_unit_is_a_gap_and_units_stay_in_a_workbook(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    table = pd.DataFrame({"size": [*["2 kg"] * 9, "700 g"], "code": "A12"})
    table.to_csv(file, index=False)
    found = read(file)
    assert found.frame["size"].tolist()[:9] == [2] * 9
    assert pd.isna(found.frame["size"].iloc[9])
    assert found.frame.code.tolist() == ["A12"] * 10
    file.write_text("size,label\n" + "2 kg,x\n" * 9)
    write(read(file).written, tmp_path / "t.xlsx", read(file))
    assert pd.read_excel(tmp_path / "t.xlsx")["size"].tolist() == ["2 kg"] * 9


def test_dates_with_points_stay_dates_where_commas_are_decimal(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("day;price;label\n03.04.2024;1,5;a\n04.04.2024;2,5;b\n")
    assert read(file).frame.day.tolist() == ["03.04.2024", "04.04.2024"]


def test_what_the_user_says_goes_before_what_is_found(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_bytes("a|b\n1,500|é\n".encode("latin-1"))
    for decimal, number in ((".", 1500), (",", 1.5)):
        assert read(file, Told(Style("latin-1", "|", decimal))).frame.a.tolist() == [number]
    assert read(file).frame.b.tolist() == ["é"]


def test_an_archive_of_one_table_is_that_table(tmp_path: Path) -> None:
    file = tmp_path / "t.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("inside/t.csv", "a;label\n1;x\n")
        archive.writestr("__MACOSX/t.csv", "junk")
    assert read(file).frame.a.tolist() == [1]
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("second.csv", "a;label\n1;x\n")
    with pytest.raises(UserError, match="must hold one"):
        read(file)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a\tlabel\n1\tx\n"))
    assert read(tmp_path / "t.csv.gz").frame.label.tolist() == ["x"]


def test_sheets_and_tables_are_chosen_by_name(tmp_path: Path) -> None:
    book, base = tmp_path / "t.xlsx", tmp_path / "t.sqlite"
    with pd.ExcelWriter(book) as writer:
        for name in ("first", "second"):
            pd.DataFrame({"a": [name], "label": ["x"]}).to_excel(
                writer, sheet_name=name, index=False
            )
    with closing(sqlite3.connect(base)) as connection:
        for name in ("first", 'se"cond'):
            pd.DataFrame({"a": [name], "label": ["x"]}).to_sql(name, connection, index=False)
    assert read(book).frame.a.tolist() == ["first"]
    assert "sheet 'first' of ['first', 'second']; choose by --sheet" in read(book).words
    assert read(book, Told(sheet="second")).frame.a.tolist() == ["second"]
    assert read(base, Told(table='se"cond')).frame.a.tolist() == ['se"cond']
    with pytest.raises(UserError, match="no sheet 'third': it has"):
        read(book, Told(sheet="third"))
    with pytest.raises(UserError, match="choose one with --table"):
        read(base)
    with pytest.raises(UserError, match="no table 'x'"):
        read(base, Told(table="x"))


def test_too_many_columns_are_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(",".join(map(str, range(60_000))) + "\n")
    with pytest.raises(UserError, match="about 60,000 columns; at most"):
        read(file)


@pytest.mark.parametrize("kind", [".xlsx", ".db"])
def test_the_command_gives_back_the_kind_of_file_that_it_was_given(
    clean: Command, kind: str
) -> None:
    case = dirty(60)
    file = clean.folder / f"train{kind}"
    write(case.train, file, File(file, kind, case.train, case.train))
    shown = clean(file.name)
    assert shown.code == 0, shown.err
    found = read(clean.folder / "cleaned" / f"labels{kind}").frame
    assert list(found)[:4] == list(case.train)
    assert found.label.tolist() == case.train.label.tolist()
    assert clean(file.name, "--output-format", "csv", "--force").code == 0
    assert (clean.folder / "cleaned" / "labels.csv").exists()


@pytest.mark.parametrize("header", ["a;label", "a;label;"])
def test_a_separator_at_the_end_of_each_line_is_no_column(header: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n1;x;\n2;y;\n")
    found = read(tmp_path / "a.csv")
    assert found.written.to_numpy().tolist() == [["1", "x"], ["2", "y"]]
    assert list(found.frame) == list(found.written) == ["a", "label"]


def test_titles_above_the_header_and_columns_without_a_name_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_text("Export vom 3.4.2024;;;;\n;;;;\na;b;c;;\n1,5;x;ja;;\n2,5;y;nein;;\n3,5;;ja;;\n")
    found = read(path)
    assert found.words.endswith("decimal commas; 2 lines above the header left out")
    assert list(found.frame) == list(found.written) == ["a", "b", "c"]
    assert found.frame.a.tolist() == [1.5, 2.5, 3.5]
    path.write_text("a,,c\n1,5,x\n2,6,y\n")
    assert list(read(path).frame) == ["a", "column 2", "c"]
    path.write_text("a\n1\n2\n")  # one column is no title
    assert read(path).frame.a.tolist() == [1, 2]


def test_blanks_before_quotation_marks_are_no_part_of_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"a", "label"\n1, "x, y"\n2, "z"\n')
    found = read(tmp_path / "a.csv")
    assert list(found.frame) == ["a", "label"]
    assert found.written.label.tolist() == ["x, y", "z"]


def test_headers_between_the_rows_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title\na,label\n1,x\na,label\n2,a\na,label\n3,label\n")
    found = read(tmp_path / "a.csv")
    assert found.frame.a.tolist() == [1, 2, 3]
    assert found.written.label.tolist() == ["x", "a", "label"]
    assert found.words.endswith("; 2 lines with the header again left out")


def test_a_table_without_a_header_is_told_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1.5,3,x\n2.5,4,y\n")
    with pytest.raises(UserError, match="if these are a row, write a line with the names"):
        column_of(read(tmp_path / "a.csv"), "label")


def test_merged_cells_of_a_workbook_hold_their_value_in_each_row(tmp_path: Path) -> None:
    path = tmp_path / "book.xlsx"
    table = pd.DataFrame({"town": list("aaabbb"), "size": range(6), "label": list("xyxyxy")})
    with pd.ExcelWriter(path) as book:
        table.to_excel(book, index=False, startrow=2, sheet_name="s")
        sheet = book.sheets["s"]
        sheet["A1"] = "Orders of 2024"
        sheet.merge_cells("A1:C1")
        sheet.merge_cells("A4:A6")
        sheet.merge_cells("A7:A9")
    found = read(path)
    assert found.frame.town.tolist() == found.written.town.tolist() == list("aaabbb")
    assert found.frame["size"].tolist() == list(range(6))


def test_what_is_nested_in_json_becomes_columns(tmp_path: Path) -> None:
    rows = [
        {"size": {"w": 1.5, "h": j}, "tags": ["a", "b"], "label": "xy"[j % 2]} for j in range(4)
    ]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("a.json", "a.jsonl"):
        found = read(tmp_path / name).frame
        assert found["size.h"].tolist() == [0, 1, 2, 3]
        assert found.tags.tolist() == ["['a', 'b']"] * 4


@pytest.mark.parametrize("how", ["columns", "split", "index", "list", "service"])
def test_json_by_columns_or_deep_inside_is_a_table_of_rows(how: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"size": [1, 2, 3], "label": list("xyx")})
    columns = table.to_dict("list")
    text = {
        "list": json.dumps(columns),
        "service": json.dumps({"ok": True, "data": {"items": table.to_dict("records")}}),
    }.get(how) or table.to_json(orient=how)
    (tmp_path / "a.json").write_text(text)
    assert read(tmp_path / "a.json").written.to_dict("list") == columns


def test_empty_rows_at_the_end_and_blanks_in_names_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a, label \n1,x\n,\n2,y\n,\n,\n")
    found = read(tmp_path / "a.csv")
    assert list(found.frame) == list(found.written) == ["a", "label"]
    assert found.written.a.tolist() == ["1", "", "2"]


def test_the_sheets_are_named_where_the_label_is_on_another(clean: Command) -> None:
    with pd.ExcelWriter(clean.folder / "book.xlsx") as book:
        pd.DataFrame({"readme": ["see orders"]}).to_excel(book, sheet_name="info", index=False)
        dirty().train.to_excel(book, sheet_name="orders", index=False)
    assert "sheet 'info' of ['info', 'orders']; choose by --sheet" in clean("book.xlsx").err


@pytest.mark.parametrize("kind", [".csv", ".xlsx"])
def test_columns_of_one_name_are_numbered_and_that_is_said(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"t{kind}"
    frame = pd.DataFrame([[1, 2, 3, "a"], [4, 5, 6, "b"]], columns=["x", "x ", "x", "label"])
    frame.to_csv(file, index=False) if kind == ".csv" else frame.to_excel(file, index=False)
    found = read(file)
    assert list(found.frame) == list(found.written) == ["x", "x.2", "x.1", "label"]
    assert "all but the first are numbered, as 'x.1'" in found.words
    assert found.frame.iloc[0].tolist() == [1, 2, 3, "a"]
