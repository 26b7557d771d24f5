"""Problems on stored rows give what the same problems give on the same rows in memory."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from bilevel.stored import NpyRows, ParquetRows

import bilevel
from bilevel.algorithms import registry
from bilevel.models.softmax.design import DenseDesign, StoredDesign
from bilevel.oracles import make
from bilevel.problem.stored import base
from bilevel.solvers.linear.cg import from_oracle

from ...truth.dense_truth import relative
from ...truth.watched import Watched

N, M, P, C = 30, 18, 4, 3
RNG = np.random.default_rng(0)
TRUTH = RNG.standard_normal((P, C))
X, V = RNG.standard_normal((N, P)), RNG.standard_normal((M, P))
LABELS, V_LABELS = ((A @ TRUTH + RNG.standard_normal((len(A), C))).argmax(1) for A in (X, V))
LEARNED = {
    "weights": {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.Ridge(0.05)},
    "penalties": {"penalty": bilevel.PerFeature()},
    "both": {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.PerWeight()},
}


@pytest.fixture(autouse=True)
def few_rows_a_block(monkeypatch):
    monkeypatch.setattr(base, "_BLOCK_BYTES", 7 * P * 8)


@pytest.fixture(params=["npy", "memory map", "parquet"])
def stored(request, tmp_path):
    """A function that stores a matrix and gives it back as the user would hand it in."""

    def store(name, matrix):
        path = tmp_path / name
        if request.param == "parquet":
            pq.write_table(pa.table({f"c{j}": matrix[:, j] for j in range(P)}), path, 4)
            return ParquetRows(path, memory=1000)
        np.save(tmp_path / f"{name}.npy", matrix)
        if request.param == "npy":
            return NpyRows(tmp_path / f"{name}.npy")
        return np.load(tmp_path / f"{name}.npy", mmap_mode="r")

    return store


def in_memory(**arguments):
    return bilevel.softmax_problem((X, LABELS), (V, V_LABELS), **arguments)


def on_disk(stored, **arguments):
    rows = stored("train", X), stored("validation", V)
    return bilevel.softmax_problem((rows[0], LABELS), (rows[1], V_LABELS), **arguments)


# Each algorithm with one thing to learn, in turn; two of them with every one.
PAIRS = [*zip(registry(), itertools.cycle(LEARNED))]
PAIRS += [(name, kind) for name in ("aid-bio", "stocbio") for kind in LEARNED]


@pytest.mark.parametrize(("name", "kind"), sorted(set(PAIRS)))
def test_every_algorithm_gives_the_same_on_stored_rows(name, kind, tmp_path):
    learned = LEARNED[kind]
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "v.npy", V)
    rows = NpyRows(tmp_path / "x.npy"), NpyRows(tmp_path / "v.npy")
    problem = bilevel.softmax_problem((rows[0], LABELS), (rows[1], V_LABELS), **learned)
    watched = [Watched(registry()[name].make()) for _ in range(2)]
    runs = [
        bilevel.minimize(p, algorithm, steps=3, seed=3)
        for p, algorithm in zip((in_memory(**learned), problem), watched, strict=True)
    ]
    truth, found = (run.state for run in runs)
    assert relative(found.x, truth.x) < 1e-10
    assert relative(found.y, truth.y) < 1e-10
    assert relative(watched[1].directions[-1], watched[0].directions[-1]) < 1e-10
    assert runs[0].history[-1].outer_value == pytest.approx(runs[1].history[-1].outer_value, 1e-10)


@pytest.mark.parametrize("name", ["stocbio", "bsa", "ttsa"])
def test_batches_of_stored_rows_give_the_same_bits(name, stored):
    learned, entry = LEARNED["weights"], registry()[name]
    algorithm = entry.make(batch=5) if name == "stocbio" else entry.make()
    truth, found = (
        bilevel.minimize(p, algorithm, steps=6, seed=1)
        for p in (in_memory(**learned), on_disk(stored, **learned))
    )
    assert torch.equal(truth.x, found.x)
    assert torch.equal(truth.y, found.y)


def test_the_default_stocbio_and_a_preconditioned_newton_method_run_on_stored_rows(stored):
    learned = LEARNED["weights"]
    newton = bilevel.inner.NewtonCG(1e-9, preconditioner=from_oracle)
    exact = bilevel.algorithms.AIDBiO(inner=newton, preconditioner=from_oracle, outer_lr=1.0)
    for algorithm in (bilevel.algorithms.StocBiO(), exact):
        truth, found = (
            bilevel.minimize(p, algorithm, steps=3, seed=1)
            for p in (in_memory(**learned), on_disk(stored, **learned))
        )
        assert relative(found.x, truth.x) < 1e-10


def test_products_with_all_rows_are_those_of_the_matrix(stored):
    truth = DenseDesign(torch.from_numpy(X))
    found = StoredDesign(bilevel.problem.sources.as_stored(stored("x", X)))
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(P, C, generator=generator, dtype=torch.float64)
    R = torch.randn(N, C, generator=generator, dtype=torch.float64)
    pairs = {
        "push": (found.push(W), truth.push(W)),
        "pull": (found.pull(R), truth.pull(R)),
        "pull_squared": (found.pull_squared(R), truth.pull_squared(R)),
        "gram": (found.gram(), truth.gram()),
    }
    for name, (product, expected) in pairs.items():
        assert product.shape == expected.shape, name
        assert relative(product, expected) < 1e-14, name
    assert len(found) == N


def losses(batch_of):
    """A ridge regression with a weight a row, as any user would state it."""

    def inner(x, y, batch):
        rows, targets = batch.data
        weights = x[batch.index].sigmoid()
        return (weights * (rows @ y - targets) ** 2).mean() + 0.1 * y @ y

    def outer(x, y, batch):
        rows, targets = batch.data
        return ((rows @ y - targets) ** 2).mean()

    (train, targets), (validation, others) = batch_of
    return bilevel.Problem(
        outer,
        inner,
        x0=torch.zeros(N).double(),
        y0=torch.zeros(P).double(),
        inner_data=(train, targets),
        outer_data=(validation, others),
    )


@pytest.mark.parametrize("name", registry())
def test_any_two_losses_give_the_same_bits_on_stored_rows(name, tmp_path):
    for file, array in {"x": X, "t": X[:, 0], "v": V, "o": V[:, 0]}.items():
        np.save(tmp_path / f"{file}.npy", array)
    x, t, v, o = (NpyRows(tmp_path / f"{file}.npy") for file in "xtvo")
    problems = losses(((X, X[:, 0]), (V, V[:, 0]))), losses(((x, t), (v, o)))
    truth, found = (bilevel.minimize(p, registry()[name].make(), steps=3, seed=1) for p in problems)
    assert torch.equal(truth.x, found.x)
    assert torch.equal(truth.y, found.y)


def test_all_rows_that_do_not_fit_are_an_error_for_losses_and_none_for_softmax(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(base, "free_memory", lambda: N * P * 8 - 1)
    np.save(tmp_path / "x.npy", X)
    rows = NpyRows(tmp_path / "x.npy")
    problem = losses(((rows, X[:, 0]), (V, V[:, 0])))
    with pytest.raises(MemoryError, match=r"NpyRows.*memory are free. Use .*batches"):
        bilevel.minimize(problem, bilevel.algorithms.AIDBiO(inner_steps=2), steps=1)
    batches = registry()["stocbio"].make(batch=5)
    assert bilevel.minimize(problem, batches, steps=1).history
    streamed = bilevel.softmax_problem((rows, LABELS), (V, V_LABELS), **LEARNED["weights"])
    assert bilevel.minimize(streamed, bilevel.algorithms.AIDBiO(inner_steps=2), steps=1).history


def test_labels_may_be_stored_too(tmp_path):
    pq.write_table(pa.table({"label": LABELS}), tmp_path / "t.parquet", 4)
    np.save(tmp_path / "v.npy", V_LABELS.astype(np.uint8))
    stored = ParquetRows(tmp_path / "t.parquet", columns="label"), NpyRows(tmp_path / "v.npy")
    problem = bilevel.softmax_problem((X, stored[0]), (V, stored[1]), **LEARNED["weights"])
    assert problem.model.form.train_labels.tolist() == LABELS.tolist()
    assert problem.model.form.validation_labels.tolist() == V_LABELS.tolist()


def test_a_bias_is_appended_as_rows_are_read(stored):
    rows = bilevel.add_bias(stored("x", X))
    assert rows.shape == (N, P + 1)
    assert torch.equal(rows.all(), torch.from_numpy(bilevel.add_bias(X)))


def test_features_that_are_not_floating_point_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((N, P), dtype=np.uint8))
    bad = NpyRows(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"train features .* \(30, 4\) of torch.uint8"):
        bilevel.softmax_problem((bad, LABELS), (V, V_LABELS), penalty=bilevel.PerFeature())


def test_a_function_that_loses_rows_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match=r"as many rows: it returned \(0, 4\) for \(1, 4\)"):
        NpyRows(tmp_path / "x.npy").map(lambda rows: rows[1:])


def test_a_kept_run_goes_on_with_the_same_rows_elsewhere_and_not_with_others(tmp_path):
    def problem(folder, matrix):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "x.npy", matrix)
        rows = NpyRows(tmp_path / folder / "x.npy")
        return bilevel.softmax_problem((rows, LABELS), (V, V_LABELS), **LEARNED["weights"])

    algorithm, keep = registry()["stocbio"].make(batch=5), tmp_path / "kept"
    unbroken = bilevel.minimize(problem("a", X), algorithm, steps=6)
    bilevel.minimize(problem("b", X), algorithm, steps=3, checkpoint=keep)
    resumed = bilevel.minimize(problem("c", X), algorithm, steps=6, checkpoint=keep)
    assert torch.equal(unbroken.x, resumed.x)
    with pytest.raises(ValueError, match="inner_data was"):
        bilevel.minimize(problem("d", X + 1), algorithm, steps=9, checkpoint=keep)


def test_the_oracle_of_stored_rows_reads_only_what_a_batch_asks_for(tmp_path):
    spoilt = X.copy()
    spoilt[20:] = np.nan
    np.save(tmp_path / "x.npy", spoilt)
    rows = NpyRows(tmp_path / "x.npy")
    problem = bilevel.softmax_problem((rows, LABELS), (V, V_LABELS), **LEARNED["weights"])
    oracle = make(problem)
    assert oracle.inner(problem.x0, problem.y0, torch.arange(20)).gradient().isfinite().all()
    with pytest.raises(ValueError, match="row 20 of"):
        oracle.inner(problem.x0, problem.y0).gradient()
