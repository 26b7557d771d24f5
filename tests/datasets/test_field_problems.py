"""The field's problems, from tiny files in the place of theirs."""

from __future__ import annotations

import bz2
import gzip
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bilevel
from bilevel.datasets import field_problems as module
from bilevel.datasets.covtype import covtype
from bilevel.datasets.ijcnn1 import ijcnn1
from bilevel.datasets.tables import Dataset
from bilevel.errors import UserError

LINES = {"ijcnn1.trn.bz2": "-1 1:0.5 22:1\n+1 2:2\n", "ijcnn1.tst.bz2": "1 3:-1\n"}


def packed(root: Path) -> Any:
    (root / "ijcnn1").mkdir()
    for name, text in LINES.items():
        (root / "ijcnn1" / name).write_bytes(bz2.compress(text.encode()))
    X = np.zeros((2, 22), np.float32)
    X[0, 0], X[0, 21], X[1, 1] = 0.5, 1, 2
    other = np.zeros((1, 22), np.float32)
    other[0, 2] = -1
    parts = {"ijcnn1.trn.bz2": (X, [-1, 1]), "ijcnn1.tst.bz2": (other, [1])}
    digests = {
        name: hashlib.sha256(rows.tobytes() + np.array(b, np.int64).tobytes()).hexdigest()
        for name, (rows, b) in parts.items()
    }
    return replace(ijcnn1, train_rows=2, test_rows=1, digests=digests), X


def test_ijcnn1_reads_libsvm_s_rows_and_refuses_others(tmp_path: Path) -> None:
    origin, X = packed(tmp_path)
    found = origin.load(tmp_path)
    assert np.array_equal(found.train[0], X)
    assert found.train[1].tolist() == [0, 1]
    changed = tmp_path / "ijcnn1" / "ijcnn1.trn.bz2"
    changed.write_bytes(bz2.compress(b"-1 1:0.5 22:1\n+1 2:3\n"))
    with pytest.raises(UserError, match="does not hold the rows that LIBSVM publishes"):
        origin.load(tmp_path)
    changed.write_bytes(bz2.compress(b"-1 23:1\n"))
    with pytest.raises(UserError, match="not a complete LIBSVM file of 22 features"):
        origin.load(tmp_path)


def test_covtype_reads_a_table_of_numbers_and_names_a_damaged_one(tmp_path: Path) -> None:
    origin, file = replace(covtype, train_rows=1, test_rows=1), tmp_path / "covtype"
    file.mkdir()
    rows = [",".join(["1"] * 54 + [label]) for label in ("1", "7")]
    (file / "covtype.data.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    found = origin.load(tmp_path)
    assert found.train[1].tolist() == [0]
    assert found.test[1].tolist() == [6]
    (file / "covtype.data.gz").write_bytes(gzip.compress(b"1,2,x\n"))
    with pytest.raises(UserError, match="is not a complete table of numbers"):
        origin.load(tmp_path)


def test_covtype_s_split_has_the_published_sizes() -> None:
    """As scikit-learn's train_test_split makes them of 581,012 rows."""
    chance = np.random.RandomState(2442)
    rest, test = module._split(chance, 581_012, 116_203)
    train, validation = module._split(chance, len(rest), 92_962)
    assert (len(train), len(validation), len(test)) == (371_847, 92_962, 116_203)


def test_a_split_is_that_of_scikit_learn() -> None:
    split = pytest.importorskip("sklearn.model_selection").train_test_split
    rows = np.arange(50)
    expected = split(rows, test_size=10, train_size=30, random_state=np.random.RandomState(32))
    found = module._split(np.random.RandomState(32), 50, 10, 30)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(0)

    def load(name: str) -> Dataset:
        size = {"ijcnn1": (22, 2, 40), "mnist": (784, 10, 26_000), "covtype": (54, 7, 60)}[name]
        X = chance.random((size[2], size[0]), np.float32)
        y = chance.integers(size[1], size=size[2])
        return Dataset(name, (X, y), (X[:30], y[:30]), ())

    monkeypatch.setattr(module, "load", load)


def test_ijcnn1_is_stated_as_published(tiny: None) -> None:
    """g = mean log(1 + e^{−b a'w}) + ½ Σ_j e^{x_j} w_j², f the mean loss, no intercept."""
    problem = bilevel.datasets.benchmark("ijcnn1").problem
    X, labels = problem.model.form.train, problem.model.form.train_labels
    signs = 2.0 * labels - 1
    w, x = problem.y0, problem.x0
    expected = torch.log1p(torch.exp(-signs * (X @ w))).mean() + (x.exp() * w**2).sum() / 2
    oracle = bilevel.oracles.make(problem)
    assert float(oracle.inner(x, w).value()) == pytest.approx(float(expected), rel=1e-12)
    assert float(x.max()) < 0  # the logarithm of a number below 1


def test_covtype_has_a_penalty_for_each_class(tiny: None) -> None:
    found = bilevel.datasets.benchmark("covtype")
    problem, form = found.problem, found.problem.model.form
    W, x = torch.randn(54, 7, generator=torch.Generator().manual_seed(0)), problem.x0
    assert x.tolist() == [-2.0] * 7
    losses = torch.nn.functional.cross_entropy(form.train @ W, form.train_labels)
    expected = losses + (x.exp() * W.square().sum(0)).sum() / 2
    value = bilevel.oracles.make(problem).inner(x, W.reshape(-1)).value()
    assert float(value) == pytest.approx(float(expected), rel=1e-5)
    assert form.train.mean(0).abs().max() < 1e-5  # standardised
    assert set(found.errors(W)) == {"validation_error", "test_error"}


def test_cleaning_draws_this_share_of_the_labels_anew(tiny: None) -> None:
    found = bilevel.datasets.benchmark("mnist-cleaning-0.9")
    form, chance = found.problem.model.form, np.random.RandomState(32)
    assert form.train.shape == (20_000, 784)
    assert found.problem.x0.unique().tolist() == [-2.0]
    assert form.penalty == bilevel.Ridge(0.2)
    module._split(chance, 26_000, 5_000, 20_000)
    drawn = chance.rand(20_000) < 0.9
    assert form.train_labels[drawn].tolist() == chance.randint(0, 10, drawn.sum()).tolist()


def test_an_unknown_benchmark_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="no benchmark 'cifar': choose one of ijcnn1, covtype"):
        bilevel.datasets.benchmark("cifar")
