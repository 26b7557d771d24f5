"""Every kind of data, against plain indexing."""

import collections

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch

from bilevel.problem.sources import Batch, as_source, scipy_csr, torch_csr

ROWS = 7
RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(ROWS, 4)) * (RNG.random((ROWS, 4)) < 0.6)
DENSE[2] = 0.0  # an empty row
LABELS = RNG.integers(3, size=ROWS)


class Pairs(torch.utils.data.Dataset):
    """A map-style Dataset of (row, label)."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return torch.as_tensor(DENSE[index]), int(LABELS[index])


class ManyRows:
    """Not a torch Dataset, but it has a length and items."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return {"row": DENSE[index], "twice": 2.0 * index}


def csr(fmt="csr"):
    return scipy.sparse.csr_array(DENSE).asformat(fmt)


MATRICES = {
    "tensor": torch.as_tensor(DENSE),
    "array": DENSE,
    "single precision": DENSE.astype(np.float32),
    "not contiguous": torch.as_tensor(DENSE.T.copy()).T,
    "scipy csr_array": csr(),
    "scipy csr_matrix": scipy.sparse.csr_matrix(DENSE),
    "scipy csc": csr("csc"),
    "scipy coo": csr("coo"),
    "torch csr": torch_csr(csr()),
    "needs a gradient": torch.as_tensor(DENSE).requires_grad_(),
}
# Empty, single, repeated, unordered, all.
CHOICES = {
    "one": [3],
    "the empty row": [2],
    "unordered": [5, 0, 3],
    "repeated": [1, 1, 6, 1],
    "all": list(range(ROWS)),
}


def dense(rows):
    return rows.to_dense().double() if rows.layout != torch.strided else rows.double()


@pytest.fixture(params=MATRICES.values(), ids=MATRICES)
def matrix(request):
    return request.param


@pytest.fixture(params=CHOICES.values(), ids=CHOICES)
def choice(request):
    return torch.tensor(request.param)


def truth_of(matrix, rows):
    exact = DENSE.astype(np.float32) if matrix.dtype == np.float32 else DENSE
    return torch.as_tensor(exact[rows], dtype=torch.float64)


def test_rows_are_those_of_plain_indexing(matrix, choice):
    taken = as_source("data", matrix).rows(choice)
    assert torch.equal(dense(taken), truth_of(matrix, choice.numpy()))
    assert not taken.requires_grad


def test_none_gives_all_rows(matrix):
    source = as_source("data", matrix)
    assert len(source) == ROWS
    assert torch.equal(dense(source.rows(None)), truth_of(matrix, slice(None)))


def test_sparse_data_stay_sparse_and_dense_data_dense(matrix, choice):
    sparse = scipy.sparse.issparse(matrix) or (
        isinstance(matrix, torch.Tensor) and matrix.layout == torch.sparse_csr
    )
    for rows in (None, choice):
        layout = as_source("data", matrix).rows(rows).layout
        assert layout == (torch.sparse_csr if sparse else torch.strided)


def test_sparse_rows_multiply_like_dense_ones(choice):
    W = torch.arange(8, dtype=torch.float64).view(4, 2)
    taken = as_source("data", csr()).rows(choice)
    expected = torch.as_tensor(DENSE[choice.numpy()]) @ W
    torch.testing.assert_close(taken @ W, expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("kind", [tuple, list])
def test_tuple_gives_the_same_rows_of_each_part(kind, choice):
    source = as_source("data", kind([csr(), LABELS, (torch.as_tensor(DENSE), Pairs())]))
    rows, labels, (again, (pair_rows, pair_labels)) = source.rows(choice)
    expected = torch.as_tensor(DENSE)[choice]
    expected_labels = torch.as_tensor(LABELS)[choice]
    assert len(source) == ROWS
    assert torch.equal(rows.to_dense(), expected)
    assert torch.equal(again, expected)
    assert torch.equal(pair_rows, expected)
    assert torch.equal(labels, expected_labels)
    assert torch.equal(pair_labels, expected_labels)


def test_dataset_rows_are_collated_as_a_data_loader_would(choice):
    rows, labels = as_source("data", Pairs()).rows(choice)
    assert torch.equal(rows, torch.as_tensor(DENSE)[choice])
    assert torch.equal(labels, torch.as_tensor(LABELS)[choice])
    named = as_source("data", ManyRows()).rows(choice)
    assert torch.equal(named["row"], torch.as_tensor(DENSE)[choice])
    assert torch.equal(named["twice"], 2.0 * choice.double())


def test_dataset_gives_all_rows_for_none():
    rows, labels = as_source("data", Pairs()).rows(None)
    assert torch.equal(rows, torch.as_tensor(DENSE))
    assert torch.equal(labels, torch.as_tensor(LABELS))


def test_tensor_dataset_and_subset_are_datasets(choice):
    full = torch.utils.data.TensorDataset(torch.as_tensor(DENSE), torch.as_tensor(LABELS))
    backwards = torch.utils.data.Subset(full, list(range(ROWS))[::-1])
    rows, labels = as_source("data", backwards).rows(choice)
    assert torch.equal(rows, torch.as_tensor(DENSE)[ROWS - 1 - choice])
    assert torch.equal(labels, torch.as_tensor(LABELS)[ROWS - 1 - choice])


def test_batch_carries_the_numbers_of_its_rows(matrix, choice):
    source = as_source("data", matrix)
    some, every = source.batch(choice), source.batch(None)
    assert isinstance(some, Batch)
    assert torch.equal(some.index, choice)
    assert len(some) == len(choice)
    assert torch.equal(every.index, torch.arange(ROWS))
    assert torch.equal(dense(every.data), truth_of(matrix, slice(None)))


def test_data_are_wrapped_without_a_copy():
    tensor, array = torch.ones(3, 2), np.ones((3, 2))
    assert as_source("data", tensor).rows(None).data_ptr() == tensor.data_ptr()
    assert as_source("data", array).rows(None).data_ptr() == array.ctypes.data
    sparse = csr()
    assert as_source("data", sparse).rows(None).values().data_ptr() == sparse.data.ctypes.data


def test_taken_rows_are_a_copy_so_that_a_loss_may_write_into_them(matrix):
    source = as_source("data", matrix)
    taken = source.rows(torch.tensor([0, 1]))
    (taken.values() if taken.layout == torch.sparse_csr else taken).fill_(9.0)
    assert torch.equal(dense(source.rows(None)), truth_of(matrix, slice(None)))


def test_scipy_and_torch_csr_hold_the_same_numbers_both_ways():
    there = torch_csr(csr())
    assert torch.equal(there.to_dense(), torch.as_tensor(DENSE))
    assert (scipy_csr(there).toarray() == DENSE).all()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (torch.empty(0, 3), ValueError, "inner_data has no rows"),
        (scipy.sparse.csr_array((0, 3)), ValueError, "inner_data has no rows"),
        (torch.tensor(3.0), ValueError, r"inner_data is a single number, 3\.0"),
        ((), ValueError, "inner_data is an empty tuple"),
        ((DENSE, LABELS[:5]), ValueError, r"different numbers of rows: \[7, 5\]"),
        ((DENSE, np.empty((0, 2))), ValueError, r"inner_data\[1\] has no rows"),
        (torch.tensor([1.0, float("nan")]), ValueError, "inner_data holds 1 values"),
        ((DENSE, np.full(ROWS, np.inf)), ValueError, r"inner_data\[1\] holds 7 values"),
        (
            scipy.sparse.csr_array(np.array([[np.nan, 0.0]])),
            ValueError,
            "inner_data holds 1 values that are NaN or infinite: clean them first",
        ),
        (torch.eye(2).to_sparse(), ValueError, r"layout torch.sparse_coo.*to_sparse_csr"),
        (3.0, TypeError, "inner_data must be a tensor.*got float"),
        ("rows", TypeError, "inner_data must be a tensor.*got str"),
        (iter([1]), TypeError, "inner_data must be a tensor.*got list_iterator"),
        ((DENSE, 5), TypeError, r"inner_data\[1\] must be a tensor.*got int"),
    ],
)
def test_what_is_no_data_raises_with_its_place_and_remedy(data, error, message):
    with pytest.raises(error, match=message):
        as_source("inner_data", data)


def test_a_table_of_numbers_is_read_as_an_array():
    frame = pandas.DataFrame(DENSE, columns=list("abcd"), index=range(10, 10 + ROWS))
    source = as_source("inner_data", (frame, pandas.Series(LABELS)))
    rows, labels = source.batch(torch.tensor([5, 1])).data
    assert rows.equal(torch.as_tensor(DENSE[[5, 1]]))
    assert labels.equal(torch.as_tensor(LABELS[[5, 1]]))


def test_a_named_tuple_of_columns_gives_batches_of_its_kind():
    kind = collections.namedtuple("kind", "rows labels")
    source = as_source("inner_data", kind(DENSE, LABELS)).part(2, 6)
    batch = source.batch(torch.tensor([1, 0])).data
    assert isinstance(batch, kind)
    assert batch.rows.equal(torch.as_tensor(DENSE[[3, 2]]))
    assert batch.labels.equal(torch.as_tensor(LABELS[[3, 2]]))
