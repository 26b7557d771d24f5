"""Rows in files, against plain indexing of the same rows in memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bilevel.stored import NpyRows, ParquetRows, write_npy

from bilevel.problem.sources import as_source, as_stored
from bilevel.problem.stored import base, row_file

ROWS = 23
RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((ROWS, 3))
PIXELS = RNG.integers(256, size=(ROWS, 2, 2)).astype(np.uint8)
CHOICES = {
    "none": [],
    "one": [7],
    "the last": [ROWS - 1],
    "neighbours": [4, 5, 6],
    "unordered": [9, 0, 22, 1, 8],
    "repeated": [3, 3, 22, 3, 4, 4],
    "backwards": list(range(ROWS))[::-1],
}


def npy(folder: Path, array: np.ndarray, **arguments) -> NpyRows:
    np.save(folder / "rows.npy", array)
    return NpyRows(folder / "rows.npy", **arguments)


def parquet(folder: Path, table: dict, group: int, **arguments) -> ParquetRows:
    pq.write_table(pa.table(table), folder / "rows.parquet", row_group_size=group)
    return ParquetRows(folder / "rows.parquet", **arguments)


def columns(matrix: np.ndarray) -> dict:
    return {f"c{j}": matrix[:, j] for j in range(matrix.shape[1])}


def lists(matrix: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


KINDS = {
    "npy": lambda f: (npy(f, MATRIX), MATRIX),
    "npy, bytes in the other order": lambda f: (npy(f, MATRIX.astype(">f8")), MATRIX),
    "npy, to single": lambda f: (npy(f, MATRIX, dtype=torch.float32), MATRIX.astype(np.float32)),
    "npy of numbers": lambda f: (npy(f, MATRIX[:, 0].copy()), MATRIX[:, 0]),
    "npy of integers": lambda f: (npy(f, np.arange(ROWS)), np.arange(ROWS)),
    "npy of pictures": lambda f: (npy(f, PIXELS), PIXELS),
    "npy, mapped": lambda f: (
        npy(f, PIXELS, dtype=torch.float64).map(lambda rows: rows.flatten(1) / 255),
        PIXELS.reshape(ROWS, -1) / 255,
    ),
    "a part of npy": lambda f: (
        npy(f, np.concatenate([MATRIX[:5] + 1, MATRIX, MATRIX[:2] - 1])).part(5, 5 + ROWS),
        MATRIX,
    ),
    "parquet": lambda f: (parquet(f, columns(MATRIX), 100), MATRIX),
    "parquet in groups": lambda f: (parquet(f, columns(MATRIX), 4), MATRIX),
    "parquet in groups of one": lambda f: (parquet(f, columns(MATRIX), 1), MATRIX),
    "parquet of lists": lambda f: (parquet(f, {"a": lists(MATRIX)}, 7), MATRIX),
    "parquet, chosen": lambda f: (
        parquet(f, columns(MATRIX), 5, columns=["c2", "c0"], dtype=torch.float32),
        MATRIX[:, [2, 0]].astype(np.float32),
    ),
    "parquet, mixed": lambda f: (
        parquet(f, {"a": lists(MATRIX), "n": np.arange(ROWS, dtype=np.int32)}, 6),
        np.column_stack([MATRIX, np.arange(ROWS)]),
    ),
    "parquet, one column": lambda f: (
        parquet(f, {"n": np.arange(ROWS)}, 6, columns="n"),
        np.arange(ROWS),
    ),
    "a part of parquet": lambda f: (
        parquet(f, columns(np.concatenate([MATRIX[:5] + 1, MATRIX, MATRIX[:2] - 1])), 4).part(
            5, 5 + ROWS
        ),
        MATRIX,
    ),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def stored_and_truth(request, tmp_path):
    rows, truth = request.param(tmp_path)
    return rows, torch.from_numpy(np.ascontiguousarray(truth))


@pytest.fixture
def few_bytes_a_block(monkeypatch):
    monkeypatch.setattr(base, "_BLOCK_BYTES", 128)


def test_shape_dtype_and_size_are_those_of_the_rows(stored_and_truth):
    rows, truth = stored_and_truth
    assert (rows.shape, rows.dtype, len(rows)) == (truth.shape, truth.dtype, ROWS)
    assert rows.nbytes == truth.nbytes


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_rows_are_those_of_plain_indexing(stored_and_truth, choice):
    rows, truth = stored_and_truth
    which = torch.tensor(choice, dtype=torch.int64)
    assert torch.equal(rows.take(which), truth[which])
    assert torch.equal(as_source("data", rows).rows(which), truth[which])


def test_blocks_are_all_rows_in_their_order(stored_and_truth, few_bytes_a_block):
    rows, truth = stored_and_truth
    blocks = list(rows.blocks())
    assert torch.equal(torch.cat([block for _, block in blocks]), truth)
    assert all(torch.equal(truth[which], block) for which, block in blocks)
    assert max(block.nbytes for _, block in blocks) <= max(128, truth[0].nbytes)


def test_none_gives_all_rows(stored_and_truth, few_bytes_a_block):
    rows, truth = stored_and_truth
    source = as_source("data", rows)
    assert torch.equal(rows.all(), truth)
    assert torch.equal(source.rows(None), truth)
    assert torch.equal(source.part(3, 9).rows(None), truth[3:9])


def test_a_copy_written_as_npy_holds_the_same(stored_and_truth, few_bytes_a_block, tmp_path):
    rows, truth = stored_and_truth
    copy = write_npy(tmp_path / "copy.npy", rows)
    assert torch.equal(copy.all(), truth)
    assert np.array_equal(np.load(tmp_path / "copy.npy"), truth.numpy())


def test_a_row_that_is_not_there_is_an_error(stored_and_truth):
    rows, _ = stored_and_truth
    for bad in ([ROWS], [0, -1]):
        with pytest.raises(IndexError, match=f"which has rows 0 to {ROWS - 1}"):
            rows.take(torch.tensor(bad))
    with pytest.raises(IndexError, match="has no rows 3 to 23"):
        rows.part(3, ROWS + 1)


def test_long_runs_of_neighbours_are_read_whole(tmp_path):
    truth = np.arange(4000).reshape(2000, 2)
    rows = npy(tmp_path, truth)
    which = np.concatenate([np.arange(1700)[::-1], [1999, 5]])
    assert np.array_equal(rows.take(torch.from_numpy(which)), truth[which])


def test_rows_are_read_in_the_order_of_the_file_and_neighbours_at_once(tmp_path, monkeypatch):
    calls, read = [], row_file._read
    rows = npy(tmp_path, MATRIX)

    def noted(file, start, into):
        calls.append(((start - rows._file.offset) // MATRIX[0].nbytes, len(into)))
        return read(file, start, into)

    monkeypatch.setattr(row_file, "_read", noted)
    rows.take(torch.tensor([20, 6, 5, 0, 7, 21]))
    assert calls == [(0, 1), (5, 3), (20, 2)]


@pytest.mark.parametrize("most", [1, 5, 30])
def test_reads_that_end_early_are_gone_on_with(tmp_path, monkeypatch, most):
    read = row_file._read
    cut_short = [0]

    def short(file, start, into):
        cut_short[0] += sum(map(len, into)) > most
        return read(file, start, [into[0][:most]])

    rows = npy(tmp_path, MATRIX)
    monkeypatch.setattr(row_file, "_read", short)
    which = torch.tensor([5, 3, 4, 19])
    assert torch.equal(rows.take(which), torch.from_numpy(MATRIX)[which])
    assert torch.equal(rows.all(), torch.from_numpy(MATRIX))
    assert cut_short[0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named_by_its_row_when_read(tmp_path, value):
    spoilt = MATRIX.copy()
    spoilt[17, 1] = value
    rows = npy(tmp_path, spoilt)
    rows.take(torch.arange(17))
    with pytest.raises(ValueError, match=r"row 17 of NpyRows.*NaN or infinite"):
        rows.take(torch.tensor([2, 17, 3]))
    with pytest.raises(ValueError, match=r"row 17 of NpyRows.*NaN or infinite"):
        rows.all()


def test_huge_values_are_finite(tmp_path):
    huge = np.full((3, 2), 3e38, dtype=np.float32)  # their sum is not
    assert torch.equal(npy(tmp_path, huge).all(), torch.from_numpy(huge))


MAPS = {
    "whole": lambda m: m,
    "from the middle": lambda m: m[5:],
    "to the middle": lambda m: m[:9],
    "a part of a part": lambda m: m[3:][2:8],
    "a row, as numbers": lambda m: m[4],
}


@pytest.mark.parametrize("of", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_memory_map_becomes_stored_rows(tmp_path, of, mode):
    np.save(tmp_path / "a.npy", MATRIX)
    part = of(np.load(tmp_path / "a.npy", mmap_mode=mode))
    rows = as_stored(part)
    assert isinstance(rows, NpyRows)
    assert np.array_equal(rows.all(), of(MATRIX))


def test_a_map_far_into_a_plain_file_becomes_stored_rows(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(70_001) + MATRIX.tobytes())
    mapped = np.memmap(tmp_path / "a.bin", np.float64, "r", offset=70_001, shape=MATRIX.shape)
    assert np.array_equal(as_stored(mapped[2:]).all(), MATRIX[2:])


def test_a_map_whose_rows_the_file_does_not_hold_stays_an_array(tmp_path):
    np.save(tmp_path / "a.npy", MATRIX)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[0] = 5.0
    for array in (mapped[:, :2], mapped[::2], mapped.T, mapped + 1, private):
        assert as_stored(array) is None
        assert np.array_equal(as_source("data", array).rows(None), array)


def resident() -> float:
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, and files with holes")
def test_resident_memory_stays_bounded_whatever_is_read(tmp_path):
    path, shape = tmp_path / "holes.npy", (250_000, 784)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )
        os.truncate(path, file.tell() + 4 * shape[0] * shape[1])
    rows, rng = NpyRows(path), np.random.default_rng(0)
    rows.take(torch.arange(500))
    before = resident()
    most = 0.0
    for _ in range(10):
        rows.take(torch.from_numpy(rng.integers(len(rows), size=500)))
        most = max(most, resident() - before)
    for _, block in rows.part(0, 100_000).blocks():
        most = max(most, resident() - before)
        assert not block.any()
    assert most < 100 * 2**20  # a memory map would hold 310 MB of the blocks alone
