"""Files that are whole, but hold what nobody would write: refused in a sentence, or read."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bilevel.apps.cleaning import files
from bilevel.apps.cleaning.columns import Column, Kind, recognise
from bilevel.apps.cleaning.engine import find_wrong_labels
from bilevel.apps.cleaning.features import Encoder
from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.given import Told
from bilevel.apps.cleaning.model import load, predict, save
from bilevel.apps.cleaning.trusted import with_trusted
from bilevel.durable import regular
from bilevel.errors import UserError

WIDTH = np.random.default_rng(0).normal(size=30).round(2)
TABLE = pd.DataFrame({"width": WIDTH, "label": [f"{i % 3:03}" for i in range(30)]})


@pytest.mark.parametrize("kind", [".csv.gz", ".zip", ".xlsx"])
def test_a_packed_file_that_is_too_large_is_not_unpacked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"bomb{kind}"
    for module in (regular, files):
        monkeypatch.setattr(module, "MOST_UNPACKED", 2**20)
    if kind == ".csv.gz":
        file.write_bytes(gzip.compress(b"a,b\n" + b"0,0\n" * 2**20))
    else:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.csv", b"\0" * 2**21)
    with pytest.raises(UserError, match="unpack it first"):
        read(file)


def test_a_view_runs_only_if_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "what? %41#.db"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    with closing(sqlite3.connect(file)) as base:
        TABLE.to_sql("rows", base, index=False)
        base.execute(f"CREATE VIEW endless AS {endless}")
        base.execute("CREATE VIEW few AS SELECT * FROM rows LIMIT 3")
    assert len(read(file).frame) == 30
    assert len(read(file, Told(table="few")).frame) == 3
    assert [other.name for other in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("value", [1e90, np.inf, np.nan])
def test_numbers_without_measure_give_finite_features(value: float) -> None:
    table = pd.DataFrame({"all": np.full(9, value), "one": [value, *range(8)]})
    kinds = [Column("all", Kind.NUMBER), Column("one", Kind.NUMBER)]
    for columns in (kinds, recognise(table)):
        features = Encoder.fit(table, columns).transform(table)
        assert all(np.isfinite(view).all() for view in features)


def test_a_decision_without_a_label_is_refused(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    decided = tmp_path / "decisions.csv"
    decided.write_text("row,label,decision\n1,001,right\n4,,changed\n")
    with pytest.raises(UserError, match="no label for row 4"):
        with_trusted(read(tmp_path / "t.csv"), "label", str(decided), ())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "model.npz"
    save(find_wrong_labels(TABLE[["width"]], TABLE.label.to_numpy(object)).model, file)
    return file


def _node(arrays: dict[str, np.ndarray], tree: dict[str, object]) -> None:
    """A tree that asks for a column that is not there."""
    name = next(n for n, a in arrays.items() if a.dtype == np.int32 and (a < 0).any())
    arrays[name] = np.where(arrays[name] < 0, -1, 10**6).astype(np.int32)


def _probabilities(arrays: dict[str, np.ndarray], tree: dict[str, object]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            arrays[name] = np.full_like(array, np.nan)


@pytest.mark.parametrize("change", [_node, _probabilities])
def test_a_crafted_model_is_refused(change: object, model: Path, tmp_path: Path) -> None:
    found = predict(load(model), TABLE, "t.csv")
    assert len(found["predicted"]) == 30
    assert (found["probability"] <= 1 + 1e-6).all()
    with np.load(model) as archive:
        arrays = dict(archive)
    tree = json.loads(arrays.pop("tree").tobytes())
    assert callable(change)
    change(arrays, tree)
    text = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    np.savez(tmp_path / "crafted.npz", tree=text, **arrays)
    with pytest.raises(UserError, match=r"cannot be used on t\.csv: it was damaged"):
        predict(load(tmp_path / "crafted.npz"), TABLE, "t.csv")


def test_texts_with_damaged_offsets_do_not_end_the_process(tmp_path: Path) -> None:
    feather, file = pytest.importorskip("pyarrow.feather"), tmp_path / "table.feather"
    table = pd.DataFrame({"colour": ["red", "green", "blue"], "label": ["a", "b", "a"]})
    feather.write_feather(table, file, compression="uncompressed")
    offsets, damaged = (np.array([0, 3, place, 12]).tobytes() for place in (8, 2**30))
    content = file.read_bytes()
    assert content.count(offsets) == 1
    file.write_bytes(content.replace(offsets, damaged))
    with pytest.raises(UserError, match=r"cannot be read as feather .*out of bounds"):
        read(file)
