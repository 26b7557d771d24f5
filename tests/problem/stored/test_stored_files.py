"""Files that are no good are refused, with their path and what was found; Parquet's memory."""

from __future__ import annotations

import os
import pickle
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bilevel.stored import NpyRows, ParquetRows

from bilevel.errors import UserError
from bilevel.problem.stored import parquet

MATRIX = np.arange(24.0).reshape(8, 3)


class Bomb:
    def __reduce__(self):
        return os.abort, ()


def cut(path, array, size):
    np.save(path, array)
    path.write_bytes(path.read_bytes()[:size])


BAD_NPY = {
    "cut off": (lambda p: cut(p, MATRIX, -8), "not a complete .npy file"),
    "cut in the header": (lambda p: cut(p, MATRIX, 40), "not a complete .npy file"),
    "empty": (lambda p: p.write_bytes(b""), "not a complete .npy file"),
    "text": (lambda p: p.write_text("1,2,3\n4,5,6\n" * 50), "not a complete .npy file"),
    "a pickle": (lambda p: p.write_bytes(pickle.dumps(Bomb())), "not a complete .npy file"),
    "objects": (
        lambda p: np.save(p, np.array([Bomb()], dtype=object), allow_pickle=True),
        "not a complete .npy file",
    ),
    "Fortran order": (lambda p: np.save(p, np.asfortranarray(MATRIX)), "Fortran order.*C order"),
    "words": (lambda p: np.save(p, np.array(["a", "b"])), "<U1: give plain numbers"),
    "records": (
        lambda p: np.save(p, np.zeros(3, dtype=[("a", "f8")])),
        "give plain numbers",
    ),
    "a single number": (lambda p: np.save(p, np.float64(3.0)), "single number"),
}


@pytest.mark.parametrize(("write", "message"), BAD_NPY.values(), ids=BAD_NPY)
def test_a_bad_npy_file_is_refused_with_its_path(tmp_path, write, message):
    path = tmp_path / "bad.npy"
    write(path)
    with pytest.raises(UserError, match=message) as caught:
        NpyRows(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    for kind in (NpyRows, ParquetRows):
        with pytest.raises(FileNotFoundError, match=r"gone\.npy"):
            kind(tmp_path / "gone.npy")


def test_fractions_are_not_thrown_away(tmp_path):
    np.save(tmp_path / "a.npy", MATRIX)
    pq.write_table(pa.table({"a": MATRIX[:, 0]}), tmp_path / "a.parquet")
    for kind, name in ((NpyRows, "a.npy"), (ParquetRows, "a.parquet")):
        with pytest.raises(UserError, match=r"holds torch.float64.*torch.int64 without loss"):
            kind(tmp_path / name, dtype=torch.int64)


@pytest.mark.parametrize("kind", [NpyRows, ParquetRows])
def test_a_file_that_changes_during_a_run_is_noticed(tmp_path, kind):
    def write(values):
        if kind is NpyRows:
            np.save(tmp_path / "rows", values)
            os.replace(tmp_path / "rows.npy", tmp_path / "rows")
        else:
            pq.write_table(pa.table({"a": values}), tmp_path / "rows", row_group_size=1)

    write(MATRIX[:, 0])
    rows = kind(tmp_path / "rows")
    rows.take(torch.tensor([1]))
    write(MATRIX[::-1, 0].copy())
    os.utime(tmp_path / "rows", ns=(0, 1))
    for read in (lambda: rows.take(torch.tensor([2])), rows.all):
        with pytest.raises(UserError, match="was changed while it was in use"):
            read()


@pytest.mark.parametrize("kind", [NpyRows, ParquetRows])
def test_other_processes_can_have_a_copy(tmp_path, kind):
    np.save(tmp_path / "a.npy", MATRIX)
    pq.write_table(pa.table({"a": MATRIX[:, 0]}), tmp_path / "a.parquet")
    rows = kind(tmp_path / ("a.npy" if kind is NpyRows else "a.parquet"))
    copy = pickle.loads(pickle.dumps(rows))
    assert torch.equal(copy.take(torch.tensor([5, 2])), rows.take(torch.tensor([5, 2])))


def table(**more):
    return pa.table({"a": [1.0, 2.0, 3.0], "b": [1, 2, 3], **more})


BAD_COLUMNS = {
    "missing": (table(), ["a", "z"], "has 0 columns 'z'.*there are 'a', 'b'"),
    "words": (table(c=["x", "y", "z"]), ["c"], "'c'.*holds string: choose columns of numbers"),
    "words among all": (table(c=["x", "y", "z"]), None, "'c'.*holds string"),
    "lists of any length": (table(c=[[1.0], [1.0, 2.0], []]), ["c"], "'c'.*holds list"),
    "moments": (table(c=pa.array([1, 2, 3], pa.timestamp("s"))), ["c"], r"holds timestamp"),
}


@pytest.mark.parametrize(("made", "chosen", "message"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_columns_that_hold_no_numbers_are_refused(tmp_path, made, chosen, message):
    path = tmp_path / "t.parquet"
    pq.write_table(made, path)
    with pytest.raises(UserError, match=message) as caught:
        ParquetRows(path, columns=chosen)
    assert str(path) in str(caught.value)


BAD_CELLS = {
    "numbers": pa.array([1.0, None, 3.0]),
    "lists": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
    "in lists": pa.array([[1.0, 2.0], [0.0, None], [3.0, 4.0]], pa.list_(pa.float64(), 2)),
}


@pytest.mark.parametrize("column", BAD_CELLS.values(), ids=BAD_CELLS)
def test_a_cell_without_a_value_is_an_error_when_it_is_read(tmp_path, column):
    pq.write_table(pa.table({"c": column}), tmp_path / "t.parquet")
    rows = ParquetRows(tmp_path / "t.parquet")
    for read in (lambda: rows.take(torch.tensor([0])), rows.all):
        with pytest.raises(UserError, match=r"column 'c' of .*t\.parquet has empty cells"):
            read()


def test_a_damaged_parquet_file_is_refused_with_its_path(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(table(), path)
    whole = path.read_bytes()
    for content in (b"", b"a,b\n1,2\n" * 20, whole[:-10], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"t\.parquet is not a complete Parquet file"):
            ParquetRows(path)


def test_parquet_without_pyarrow_says_how_to_install_it(tmp_path, monkeypatch):
    pq.write_table(table(), tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"need pyarrow: pip install"):
        ParquetRows(tmp_path / "t.parquet")


@pytest.fixture
def decoded(monkeypatch):
    """How many rows each decoding gave."""
    found, tensor = [], parquet.Columns.tensor

    def noted(self, table):
        found.append(table.num_rows)
        return tensor(self, table)

    monkeypatch.setattr(parquet.Columns, "tensor", noted)
    return found


def groups_of_two(folder, memory):
    """Eight rows of 8 bytes, in four row groups."""
    pq.write_table(pa.table({"a": np.arange(8.0)}), folder / "t.parquet", row_group_size=2)
    return ParquetRows(folder / "t.parquet", columns="a", memory=memory)


def test_a_batch_decodes_only_the_row_groups_that_it_has_rows_of_and_each_once(tmp_path, decoded):
    rows = groups_of_two(tmp_path, memory=16)
    assert rows.take(torch.tensor([7, 0, 6, 1, 7])).tolist() == [7, 0, 6, 1, 7]
    assert decoded == [2, 2]


def test_row_groups_are_kept_up_to_the_memory_given(tmp_path, decoded):
    rows = groups_of_two(tmp_path, memory=64)
    for _ in range(3):
        rows.take(torch.arange(8))
    assert len(decoded) == 4  # all fit
    small = groups_of_two(tmp_path, memory=33)
    for _ in range(3):
        small.take(torch.arange(8))
        assert sum(group.nbytes for group in small._kept.values()) <= 33
    assert len(decoded) == 4 + 4 + 2 + 2  # of four groups two are kept, and used first


def test_a_row_group_larger_than_the_memory_is_refused_with_what_to_do(tmp_path):
    rows = groups_of_two(tmp_path, memory=15)
    with pytest.raises(UserError, match=r"row group 1 .* 16 bytes.*15: .*write_npy"):
        rows.take(torch.tensor([3]))
    assert rows.all().tolist() == list(range(8))  # block by block it can be read
    with pytest.raises(ValueError, match="memory must be an integer of at least 1, got 0"):
        groups_of_two(tmp_path, memory=0)


def test_any_damage_to_a_npy_header_is_a_sentence(tmp_path):
    path, random = tmp_path / "a.npy", np.random.default_rng(0)
    np.save(path, np.arange(12.0).reshape(4, 3))
    whole, refused = path.read_bytes(), 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[random.integers(6, 70)] = random.integers(256)
        path.write_bytes(damaged)
        try:
            NpyRows(path)
        except UserError as error:
            refused += str(path) in str(error)
    assert refused > 100


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_a_file_that_is_deleted_during_a_run_is_named(tmp_path, kind):
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    pq.write_table(pa.table({"a": [1.0, 2.0]}), tmp_path / "a.parquet")
    path = tmp_path / f"a.{kind}"
    rows = NpyRows(path) if kind == "npy" else ParquetRows(path)
    path.unlink()
    with pytest.raises(UserError, match=f"a.{kind} is gone"):
        rows.take(torch.arange(2))
