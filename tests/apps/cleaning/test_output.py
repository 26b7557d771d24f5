"""`bilevel clean`: what it writes."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import scipy.special

from .dirty_tables import NAMES, Command, dirty, with_gaps

TRUSTED = ("--trusted", "trusted.csv")
HOSTILE = "<script>alert('x')</script>"


def test_the_model_file_predicts_as_the_report_says(clean: Command) -> None:
    case = dirty()
    train = with_gaps(case.train, 0)
    clean.write(train=train, trusted=with_gaps(case.trusted, 1))
    found = clean.labels("train.csv", *TRUSTED)
    with np.load(clean.folder / "cleaned" / "model.npz", allow_pickle=False) as file:
        model = dict(file)
    names = model["features"].tolist()
    colours = train.colour.fillna("(missing)")
    rows = np.column_stack(
        [
            train[name] if name in train else colours == name.removeprefix("colour_")
            for name in names
        ]
    ).astype(float)
    rows = np.where(np.isnan(rows), model["fill"], rows)
    probabilities = scipy.special.softmax(rows @ model["coefficients"] + model["intercept"], axis=1)
    given = probabilities[np.arange(150), np.searchsorted(model["classes"], train.label)]
    assert names[:2] == ["width", "height"]
    assert model["classes"].tolist() == NAMES.tolist()
    assert np.allclose(1 - given, found.suspicion, atol=1e-4)
    assert (model["classes"][probabilities.argmax(1)] == found.likely_label).mean() > 0.99
    assert "rows @ model[&#34;coefficients&#34;] + model[&#34;intercept&#34;]" in clean.report()


def test_the_report_is_complete_in_itself_and_shows_what_was_found(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    found = clean.labels("train.csv", *TRUSTED)
    html = clean.report()
    markup = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:|#)', markup)
    assert "default-src 'none'" in markup
    flagged = found[found.flagged].sort_values("suspicion", ascending=False)
    for row in flagged.head(30).itertuples():
        assert re.search(
            rf'data-order="{row.row}">{row.row}</td>\s*<td class="">{row.label}</td>\s*'
            rf'<td class="">{row.likely_label}</td>',
            markup,
        )
    assert f"Of 150 rows, {len(flagged)} (" in markup
    assert "bilevel clean train.csv --trusted trusted.csv" in markup
    assert 'role="note"' not in markup


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
    assert html.count("<script>") == 2  # plotly.js and the page's own


def test_nothing_flagged_is_a_report_too(clean: Command) -> None:
    frame = pd.DataFrame({"x": [-1.0, 1.0] * 30, "label": ["no", "yes"] * 30})
    clean.write(train=frame, trusted=frame)
    found = clean.labels("train.csv", *TRUSTED)
    assert not found.flagged.any()
    assert "Of 60 rows, 0 (0%)" in clean.report()


def test_the_same_seed_gives_the_same_bits(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    written = []
    for seed in ("0", "0", "99999999999"):
        clean.labels(
            "train.csv",
            *TRUSTED,
            "--seed",
            seed,
            "--algorithm",
            "stocbio",
            "--steps",
            "3",
            "--force",
        )
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
    assert names == ["labels.csv", "model.npz", "notes.txt", "report.html"]
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
        "train.csv",
        "trusted.csv",
    ]


def test_few_trusted_rows_are_a_warning_on_the_screen_and_in_the_report(clean: Command) -> None:
    case = dirty()
    few = case.trusted.groupby("label").head(10).drop(index=case.trusted.index[3:24:3])
    clean.write(train=case.train, trusted=few)
    shown = clean("train.csv", *TRUSTED)
    assert shown.code == 0
    warning = "fewer than 5 trusted rows ('ant' has 3)"
    assert f"warning: some classes have {warning}" in shown.err
    assert "warning" not in shown.out
    assert f"have {warning}".replace("'", "&#39;") in clean.report()


def test_labels_keep_their_text(clean: Command) -> None:
    case, named = dirty(), {"ant": "007", "bee": "1.1", "cat": "1.10"}
    frames = (frame.assign(label=frame.label.map(named)) for frame in (case.train, case.trusted))
    clean.write(**dict(zip(("train", "trusted"), frames, strict=True)))
    assert clean("train.csv", *TRUSTED).code == 0
    found = pd.read_csv(clean.folder / "cleaned" / "labels.csv", dtype=str)
    assert found.label.tolist() == case.train.label.map(named).tolist()
    assert set(found.likely_label) == set(named.values())


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
