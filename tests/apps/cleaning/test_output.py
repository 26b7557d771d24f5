"""`bilevel clean`: what it writes."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from .dirty_tables import Command, dirty

TRUSTED = ("--trusted", "trusted.csv")
HOSTILE = "<script>alert('x')</script>"


def test_the_report_is_complete_in_itself_and_shows_what_was_found(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    found = clean.labels("train.csv", *TRUSTED)
    html = clean.report()
    markup = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:|#)', markup)
    assert "default-src 'none'" in markup
    found["row"] = found.index + 1
    flagged = found[found.flagged].sort_values("suspicion", ascending=False, kind="stable")
    for row in flagged.head(30).itertuples():
        assert re.search(
            rf'data-order="{row.row}">{row.row}</td>\s*<td class="">{row.label}</td>\s*'
            rf'<td class="">{row.likely_label}</td>',
            markup,
        )
    assert re.search(r"About \d+ of 150 labels are wrong; with 90% confidence between", markup)
    told = rf"{len(flagged)} disagree with what the other rows suggest, and are flagged; about \d+%"
    assert re.search(told, markup)
    assert "bilevel clean train.csv --trusted trusted.csv" in markup
    assert len(html) < 300_000


def test_hostile_labels_columns_and_values_are_shown_and_never_run(clean: Command) -> None:
    case = dirty()
    names = {"ant": HOSTILE, "bee": "</td>&", "cat": "[red]=1+1"}
    frames = {
        name: frame.assign(label=frame.label.map(names)).rename(columns={"width": HOSTILE})
        for name, frame in (("train", case.train), ("trusted", case.trusted))
    }
    frames["train"]["colour"] += HOSTILE
    frames["trusted"]["colour"] += HOSTILE
    clean.write(**frames)
    found = clean.labels("train.csv", *TRUSTED)
    assert found.label.tolist() == frames["train"].label.tolist()
    html = clean.report()
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;</td>" in html
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;</th>" in html
    assert html.count("<script>") == 1  # the page's own


def test_nothing_flagged_is_a_report_too(clean: Command) -> None:
    frame = pd.DataFrame({"x": np.linspace(1, 2, 60) * ([-1, 1] * 30), "label": ["no", "yes"] * 30})
    clean.write(train=frame)
    shown = clean("train.csv")
    assert shown.code == 0
    assert "of 60 labels may be wrong, and perhaps none is." in shown.out
    assert "None is suspicious enough to be flagged." in clean.report()


def test_the_same_seed_gives_the_same_bits(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    written = []
    for seed in ("0", "0", "99999999"):
        clean.labels("train.csv", *TRUSTED, "--seed", seed, "--force")
        written.append((clean.folder / "cleaned" / "labels.csv").read_bytes())
    assert written[0] == written[1] != written[2]


def test_a_folder_that_is_not_empty_is_filled_by_force_and_keeps_other_files(
    clean: Command,
) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    output = clean.folder / "cleaned"
    output.mkdir()
    (output / "labels.csv").write_text("old")
    (output / "notes.txt").write_text("mine")
    assert len(clean.labels("train.csv", *TRUSTED, "--force")) == 150
    names = sorted(file.name for file in output.iterdir())
    assert names == ["labels.csv", "model.npz", "notes.txt", "report.html", "review.html"]
    assert (output / "notes.txt").read_text() == "mine"


def test_the_output_may_be_deep_and_its_parts_new(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    shown = clean("train.csv", *TRUSTED, "--output", "a/b/c")
    assert shown.code == 0, shown.err
    assert "report: a/b/c/report.html" in shown.out
    files = sorted(str(file.relative_to(clean.folder)) for file in clean.folder.rglob("*.*"))
    assert files == [
        "a/b/c/labels.csv",
        "a/b/c/model.npz",
        "a/b/c/report.html",
        "a/b/c/review.html",
        "train.csv",
        "trusted.csv",
    ]


def test_few_trusted_rows_and_none_of_a_class_are_told_on_the_screen_and_in_the_report(
    clean: Command,
) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted[case.trusted.label != "ant"].head(8))
    shown = clean("train.csv", *TRUSTED)
    assert shown.code == 0
    for text in ("there are only 8 trusted rows", "no trusted row has the label 'ant': judged"):
        assert text in " ".join(shown.err.split())
        assert text[1:].replace("'", "&#39;") in clean.report()
    assert "note" not in shown.out


def test_what_trusted_rows_say_comes_with_their_number_and_an_interval(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    shown = clean("train.csv", *TRUSTED)
    assert re.search(
        r"Of 60 checked rows, \d+% were given their right label by models that had not seen it "
        r"\(\d+% to \d+% with 90% confidence\)",
        shown.out,
    )


def test_a_column_of_the_users_that_has_our_name_stays(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train.assign(flagged="mine"))
    found = clean.labels("train.csv")
    assert set(found.flagged) == {"mine"}
    assert found.flagged_.dtype == bool


def test_labels_keep_their_text(clean: Command) -> None:
    case, named = dirty(), {"ant": "007", "bee": "1.1", "cat": "1.10"}
    frames = (frame.assign(label=frame.label.map(named)) for frame in (case.train, case.trusted))
    clean.write(**dict(zip(("train", "trusted"), frames, strict=True)))
    assert clean("train.csv", *TRUSTED).code == 0
    found = pd.read_csv(clean.folder / "cleaned" / "labels.csv", dtype=str)
    assert found.label.tolist() == case.train.label.map(named).tolist()
    assert set(found.likely_label) == set(named.values())


def test_numbers_with_decimal_commas_stay_what_they_are(clean: Command) -> None:
    size = np.arange(-30, 30) / 7
    frame = pd.DataFrame({"size": size, "label": np.where(size > 0, "yes", "no")})
    frame.to_csv(clean.folder / "commas.csv", sep=";", decimal=",", index=False)
    assert clean("commas.csv").code == 0
    written = pd.read_csv(clean.folder / "cleaned" / "labels.csv", sep=";", decimal=",")
    assert np.array_equal(written["size"], size)


def test_a_label_that_a_spreadsheet_would_run_is_guarded_and_a_number_is_not(
    clean: Command,
) -> None:
    case, named = dirty(), {"ant": "=cmd|' /C calc'!A0", "bee": "-1.5", "cat": "@SUM(A1)"}
    frames = (frame.assign(label=frame.label.map(named)) for frame in (case.train, case.trusted))
    clean.write(**dict(zip(("train", "trusted"), frames, strict=True)))
    assert clean("train.csv", *TRUSTED).code == 0
    found = pd.read_csv(clean.folder / "cleaned" / "labels.csv", dtype=str)
    for column in (found.label, found.likely_label):
        assert set(column) == {"'=cmd|' /C calc'!A0", "-1.5", "'@SUM(A1)"}
