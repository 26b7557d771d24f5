"""What a user passes in stays as it was, and labels of every integer type are taken."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

import bilevel
from bilevel.algorithms import AIDBiO


def unsorted(seed: int) -> scipy.sparse.csr_matrix:
    """Legal, with indices in no order and some of them twice."""
    random = np.random.default_rng(seed)
    indices = np.concatenate([[*random.permutation(6)[:3], 0] for _ in range(40)])
    ends = np.arange(0, 161, 4)
    return scipy.sparse.csr_matrix((random.normal(size=160), indices, ends), shape=(40, 6))


def test_a_sparse_matrix_with_unsorted_indices_is_never_written_to() -> None:
    X, V = unsorted(0), unsorted(1)
    labels = np.arange(40) % 2

    def memory() -> list[bytes]:
        return [part.tobytes() for m in (X, V) for part in (m.data, m.indices, m.indptr)]

    before = memory()
    problem = bilevel.softmax_problem((X, labels), (V, labels), penalty=bilevel.PerFeature())
    result = bilevel.minimize(problem, AIDBiO(), steps=2)
    bilevel.certify(result)
    bilevel.theory.estimate(problem, result.x, result.y)
    assert memory() == before
    dense = bilevel.softmax_problem(
        (X.toarray(), labels), (V.toarray(), labels), penalty=bilevel.PerFeature()
    )
    y = torch.linspace(-1, 1, len(problem.y0), dtype=torch.float64)
    torch.testing.assert_close(problem.inner_loss(problem.x0, y), dense.inner_loss(dense.x0, y))


def test_read_only_arrays_will_do() -> None:
    X, labels = unsorted(0).toarray(), np.arange(40) % 2
    for array in (X, labels):
        array.flags.writeable = False
    problem = bilevel.softmax_problem((X, labels), (X, labels), penalty=bilevel.PerFeature())
    assert len(bilevel.minimize(problem, AIDBiO(), steps=2).history) == 2


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"])
def test_labels_of_every_integer_type_are_taken(kind: str) -> None:
    X = unsorted(0).toarray()
    labels = (np.arange(40) % 3).astype(kind)
    for given in (labels, torch.as_tensor(labels)):
        problem = bilevel.softmax_problem((X, given), (X, given), penalty=bilevel.PerFeature())
        assert len(problem.y0) == 18


def test_labels_far_beyond_the_number_of_rows_are_an_error() -> None:
    X = unsorted(0).toarray()
    labels = np.arange(40) * 50_000
    with pytest.raises(ValueError, match=r"a label 1950000, but only 80 rows"):
        bilevel.softmax_problem((X, labels), (X, labels), penalty=bilevel.PerFeature())


@pytest.mark.parametrize("name", ["H", "F"])
def test_a_quadratic_that_is_not_symmetric_is_an_error(name: str) -> None:
    eye = torch.eye(2).double()
    given = {"H": eye, "F": eye, name: torch.tensor([[2.0, 1.0], [0.0, 2.0]]).double()}
    with pytest.raises(ValueError, match=f"{name} must be symmetric"):
        bilevel.quadratic_problem(J=eye, c=eye[0], d=eye[1], **given)


@pytest.mark.parametrize("answer", [True, np.True_, torch.tensor(True), 1])
def test_any_form_of_true_stops_a_run(answer: object) -> None:
    eye = torch.eye(2).double()
    problem = bilevel.quadratic_problem(eye, eye, eye[0], eye, eye[1])
    result = bilevel.minimize(problem, AIDBiO(), callbacks=[lambda progress: answer])  # type: ignore[list-item,return-value]
    assert (result.status, len(result.history)) == ("stopped", 1)
