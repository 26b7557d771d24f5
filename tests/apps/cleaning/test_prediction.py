"""`bilevel predict`: a model file labels new tables, whatever the order of their columns."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from bilevel.apps.cleaning import job, model
from bilevel.apps.cleaning.request import Request
from bilevel.errors import UserError

from .dirty_tables import Command, dirty, table


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> tuple[job.Found, bytes]:
    """What was found, and the model's file."""
    place = tmp_path_factory.mktemp("model")
    train = dirty().train.assign(
        note=[f"the {c} one, of row {i}" for i, c in enumerate(dirty().train.colour)],
        day=pd.date_range("2024-01-01", periods=150, freq="31h").strftime("%d.%m.%Y"),
    )
    train.to_csv(place / "train.csv", index=False)
    prepared = job.prepare(Request(place / "train.csv", "label", place / "out"))
    found = job.run(prepared, lambda *_: None)
    job.write_all(prepared, found, "bilevel clean")
    return found, (place / "out" / "model.npz").read_bytes()


@pytest.fixture
def at_hand(clean: Command, cleaned: tuple[job.Found, bytes]) -> Command:
    (clean.folder / "cleaned").mkdir()
    (clean.folder / "cleaned" / "model.npz").write_bytes(cleaned[1])
    return clean


def new_rows() -> pd.DataFrame:
    rows = table(90, seed=5).assign(day="14.02.2024")
    return rows.assign(note="the " + rows.colour + " one, of row 7")


def test_the_file_holds_the_model_to_the_last_digit(
    at_hand: Command, cleaned: tuple[job.Found, bytes]
) -> None:
    loaded = model.load(at_hand.folder / "cleaned" / "model.npz")
    assert isinstance(loaded, model.Model)
    assert isinstance(cleaned[0].model, model.Model)
    rows = new_rows()
    assert np.array_equal(loaded.probabilities(rows), cleaned[0].model.probabilities(rows))
    with np.load(at_hand.folder / "cleaned" / "model.npz", allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)


def test_new_rows_are_labelled_in_any_order_of_columns_with_unseen_values(at_hand: Command) -> None:
    rows = new_rows()
    strange = rows.assign(colour="violet", more=1)[["more", "note", "label", *list("")]]
    odd = strange.join(rows.assign(colour="violet")[["colour", "day", "height", "width"]])
    at_hand.write(plain=rows.drop(columns="label"), odd=odd)
    found = {}
    for name in ("plain", "odd"):
        shown = at_hand.predict(f"{name}.csv", "--force")
        assert shown.code == 0, shown.err
        assert shown.out == "90 rows labelled: predicted.csv\n"
        found[name] = pd.read_csv(at_hand.folder / "predicted.csv")
        assert (found[name].predicted == rows.label).mean() > 0.85
        assert found[name].probability.between(1 / 3, 1).all()
    assert list(found["odd"]) == [*odd, "predicted", "probability"]


def test_gaps_are_no_hindrance_and_a_missing_column_is_named(at_hand: Command) -> None:
    rows = new_rows()
    at_hand.write(gaps=rows.assign(width=None, note=None), less=rows.drop(columns=["width", "day"]))
    assert at_hand.predict("gaps.csv").code == 0
    shown = at_hand.predict("less.csv", "--force")
    assert shown.code == 2
    assert "less.csv lacks columns that the model needs: ['width', 'day']" in shown.err
    at_hand.write(words=rows.assign(width="wide"))
    shown = at_hand.predict("words.csv", "--force")
    assert shown.code == 2
    assert "words.csv has no numbers in columns that need them: ['width']" in shown.err
    at_hand.write(soon=rows.assign(day="soon"))
    shown = at_hand.predict("soon.csv", "--force")
    assert shown.code == 2
    assert "soon.csv has no dates in columns that need them: ['day']" in shown.err


def test_what_stands_there_is_not_replaced_unasked(at_hand: Command) -> None:
    at_hand.write(new=new_rows())
    assert at_hand.predict("new.csv").code == 0
    shown = at_hand.predict("new.csv")
    assert shown.code == 2
    assert "predicted.csv exists: choose another name, or use --force" in shown.err
    assert at_hand.predict("new.csv", "--output", "x.xlsx").code == 0
    assert len(pd.read_excel(at_hand.folder / "x.xlsx")) == 90
    shown = at_hand.predict("new.csv", "--output", "./new.csv", "--force")
    assert (shown.code, "is what is read" in shown.err) == (2, True)
    assert "predicted" not in (at_hand.folder / "new.csv").read_text()
    new_rows().to_csv(at_hand.folder / "cleaned" / "labels.csv", index=False)
    shown = at_hand("cleaned/labels.csv", "--force")
    assert (shown.code, "holds a table that is read" in shown.err) == (2, True)


def test_a_sheet_and_a_spelling_are_chosen_for_new_rows_too(at_hand: Command) -> None:
    with pd.ExcelWriter(at_hand.folder / "new.xlsx") as book:
        pd.DataFrame({"a": [1]}).to_excel(book, sheet_name="cover", index=False)
        new_rows().to_excel(book, sheet_name="rows", index=False)
    assert "lacks columns that the model needs" in at_hand.predict("new.xlsx").err
    assert at_hand.predict("new.xlsx", "--sheet", "rows", "--output", "x.csv").code == 0
    new_rows().to_csv(at_hand.folder / "new.txt", sep="^", index=False)
    assert at_hand.predict("new.txt", "--separator", "^", "--output", "y.csv").code == 0


def test_a_damaged_model_and_a_tree_in_circles_are_refused(at_hand: Command) -> None:
    path = at_hand.folder / "cleaned" / "model.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    tree = json.loads(arrays["tree"].tobytes())
    forest = next(e for e in tree["model"]["parts"]["experts"] if e["kind"] == "Forest")
    name = forest["parts"]["right"]["array"]
    np.savez(path, **(arrays | {name: 0 * arrays[name]}))
    with pytest.raises(UserError, match="a tree goes in circles"):
        model.load(path)
    path.write_bytes(path.read_bytes()[:-300])
    at_hand.write(new=new_rows())
    shown = at_hand.predict("new.csv")
    assert shown.code == 2
    assert "model.npz" in shown.err
    assert "Traceback" not in shown.err
