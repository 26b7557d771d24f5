"""The compiled kernels of softmax regression equal the closed forms in torch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import bilevel
from bilevel.kernels.kernel import kernel
from bilevel.models.softmax.compiled import forms
from bilevel.models.softmax.compiled.regression import Regression
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle, worth_compiling
from bilevel.oracles import SoftmaxOracle, make_oracle
from bilevel.oracles.base import Step, Sweep

from .compiled_cases import (
    CLASSES,
    assert_near,
    every_layout,
    matrix,
    oracles_of,
    penalties,
    problem_of,
    reproducible,
    rows_of,
    seeds,
    vectors,
)


def answers(oracle, x, y, v, rows, outer_rows):
    around = oracle.linearize(x, y, rows)
    hvp, cross = around.hvp_and_cross(v)
    value, gradient = oracle.inner_value_and_gradient(x, y, rows)
    return {
        "outer value": oracle.outer_value(x, y, outer_rows),
        "outer gradient": oracle.outer_gradient(x, y, outer_rows)[1],
        "inner value": oracle.inner_value(x, y, rows),
        "value": value,
        "gradient with value": gradient,
        "gradient": oracle.inner_gradient(x, y, rows),
        "gradient again": around.gradient(),
        "hvp": around.hvp(v),
        "cross": around.cross(v),
        "hvp with cross": hvp,
        "cross with hvp": cross,
        "diagonal": around.diagonal(),
        "approximate inverse": around.approximate_inverse()(v),
    }


@every_layout
@reproducible
@given(seeds, penalties, st.booleans())
def test_every_answer_is_that_of_torch(layout, seed, penalty, batched):
    slow, fast = oracles_of(problem_of(layout, seed, penalty))
    x, y, v = vectors(slow, seed)
    rows, outer_rows = rows_of(seed, 40, 37, 9) if batched else (None, None)
    truth = answers(slow, x, y, v, rows, outer_rows)
    for name, found in answers(fast, x, y, v, rows, outer_rows).items():
        assert_near(found, truth[name], 1e-10, name)


@every_layout
@reproducible
@given(seeds, penalties, st.lists(st.integers(1, 30), min_size=1, max_size=6), st.booleans())
def test_steps_on_batches_are_those_of_torch(layout, seed, penalty, sizes, varied):
    slow, fast = oracles_of(problem_of(layout, seed, penalty))
    x, y, _ = vectors(slow, seed)
    batches = rows_of(seed, 151, *sizes)
    rates = [0.1 + 0.1 * t * varied for t in range(len(sizes))]
    steps = [Step(rows, lr) for rows, lr in zip(batches, rates, strict=True)]
    assert_near(fast.descend(x, y, steps), slow.descend(x, y, steps), 1e-10)


@every_layout
@reproducible
@given(seeds, penalties)
def test_steps_on_all_rows_are_those_of_torch(layout, seed, penalty):
    slow, fast = oracles_of(problem_of(layout, seed, penalty))
    x, y, _ = vectors(slow, seed)
    steps = [Step(None, 0.1), Step(None, 0.3), Step(None, 0.2)]
    assert_near(fast.descend(x, y, steps), slow.descend(x, y, steps), 1e-10)


@every_layout
@reproducible
@given(seeds, penalties, st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_neumann_factors_on_batches_are_those_of_torch(layout, seed, penalty, sizes):
    slow, fast = oracles_of(problem_of(layout, seed, penalty))
    x, y, v = vectors(slow, seed)
    batches = rows_of(seed, 151, *sizes)
    truth = slow.contract(x, y, v, batches, 0.2)
    for found, expected in zip(fast.contract(x, y, v, batches, 0.2), truth, strict=True):
        assert_near(found, expected, 1e-10)


@pytest.mark.parametrize("layout", ["background", "wide"])
def test_single_precision_is_as_near_to_the_truth_as_torchs(layout):
    exact = SoftmaxOracle(problem_of(layout, 3).closed_form)
    slow, fast = oracles_of(problem_of(layout, 3, dtype=np.float32))
    x, y, v = vectors(slow, 3)
    batches = rows_of(3, 151, 7, 1, 20)
    steps = [Step(rows, 0.1) for rows in batches]

    def all_of(oracle, *at):
        found = answers(oracle, *at, None, None)
        del found["approximate inverse"]  # where a factorisation may fail
        return found | {
            "steps": oracle.descend(*at[:2], steps),
            "factors": oracle.contract(*at, batches, 0.2)[1],
        }

    truth = all_of(exact, x.double(), y.double(), v.double())
    there, here = all_of(slow, x, y, v), all_of(fast, x, y, v)
    for name, expected in truth.items():
        size = expected.norm()
        ours, theirs = ((found[name].double() - expected).norm() for found in (here, there))
        assert ours <= 4 * theirs + 1e-6 * size, name


def there_and_back(oracle, x, y, r, steps):
    path = oracle.trace(x, y, steps)
    sweep = oracle.retrace(x, path[:-1], steps, Sweep(r, 2 * r, x.clone()))
    return {"path": path, **sweep._asdict()}


@every_layout
@reproducible
@given(seeds, penalties, st.lists(st.integers(1, 30), min_size=1, max_size=5), st.booleans())
def test_the_way_back_over_steps_is_that_of_torch(layout, seed, penalty, sizes, batched):
    slow, fast = oracles_of(problem_of(layout, seed, penalty))
    x, y, r = vectors(slow, seed)
    batches = rows_of(seed, 151, *sizes) if batched else [None] * len(sizes)
    steps = [Step(rows, 0.1 + 0.1 * t) for t, rows in enumerate(batches)]
    truth = there_and_back(slow, x, y, r, steps)
    for name, found in there_and_back(fast, x, y, r, steps).items():
        assert_near(found, truth[name], 1e-10, name)


@pytest.fixture(params=[1, 3])
def shared_out(request, monkeypatch):
    """However little the work is, so many threads share it, and each call makes one step."""
    monkeypatch.setattr("bilevel.models.softmax.compiled.regression._WORTH_A_THREAD", 1)
    monkeypatch.setattr("bilevel.models.softmax.compiled.regression._AT_ONCE", 1)
    monkeypatch.setattr("bilevel.kernels.threads.count", lambda: request.param)


@every_layout
def test_threads_and_shorter_calls_give_the_same(layout, shared_out):
    slow, fast = oracles_of(problem_of(layout, 5))
    x, y, v = vectors(slow, 5)
    for rows in (None, *rows_of(5, 40, 31, 2)):  # of two rows, one thread has none
        truth = answers(slow, x, y, v, rows, rows)
        for name, found in answers(fast, x, y, v, rows, rows).items():
            assert_near(found, truth[name], 1e-10, name)
    for batches in ([None] * 4, rows_of(5, 40, 31, 1, 8)):
        equal = [Step(rows, 0.1) for rows in batches]
        assert_near(fast.descend(x, y, equal), slow.descend(x, y, equal), 1e-10)
        steps = [Step(rows, 0.1 + 0.1 * t) for t, rows in enumerate(batches)]
        assert_near(fast.descend(x, y, steps), slow.descend(x, y, steps), 1e-10)
        for found, truth in zip(
            fast.contract(x, y, v, batches, 0.3), slow.contract(x, y, v, batches, 0.3), strict=True
        ):
            assert_near(found, truth, 1e-10)
        truth = there_and_back(slow, x, y, v, steps)
        for name, found in there_and_back(fast, x, y, v, steps).items():
            assert_near(found, truth[name], 1e-10, name)


@every_layout
def test_without_torchs_team_there_is_one_thread(layout, shared_out, monkeypatch):
    monkeypatch.setattr("bilevel.kernels.threads.team", lambda: None)
    slow, fast = oracles_of(problem_of(layout, 8))
    x, y, v = vectors(slow, 8)
    truth = answers(slow, x, y, v, None, None)
    for name, found in answers(fast, x, y, v, None, None).items():
        assert_near(found, truth[name], 1e-10, name)
    asked = []
    monkeypatch.setattr("bilevel.kernels.softmax.losses", lambda *given: asked.append(given[-1]))
    fast.inner_value(x, y)
    assert asked == [1]


@every_layout
def test_what_is_given_is_not_written_to(layout):
    _, fast = oracles_of(problem_of(layout, 6))
    given_vectors = vectors(fast, 6)
    x, y, v = (vector.clone() for vector in given_vectors)
    batches = rows_of(6, 151, 3, 8)
    fast.descend(x, y, [Step(rows, 0.5) for rows in batches])
    fast.contract(x, y, v, batches, 0.5)
    there_and_back(fast, x, y, v, [Step(rows, 0.5) for rows in batches])
    answers(fast, x, y, v, None, None)
    assert all(map(torch.equal, (x, y, v), given_vectors))


@every_layout
@pytest.mark.parametrize("lost", [float("nan"), float("inf")])
def test_a_diverged_iterate_is_not_made_finite(layout, lost):
    _, fast = oracles_of(problem_of(layout, 7))
    x, y, v = vectors(fast, 7)
    y[::CLASSES] = lost  # the first class of every feature
    batches = rows_of(7, 151, 9, 9)
    assert not fast.inner_gradient(x, y).isfinite().all()
    assert not fast.inner_value(x, y).isfinite()
    assert not fast.linearize(x, y).hvp(v).isfinite().all()
    assert not fast.descend(x, y, [Step(rows, 0.1) for rows in batches]).isfinite().all()


def test_large_logits_give_the_probabilities_of_torch():
    _, fast = oracles_of(problem_of("dense", 8))
    _, y, _ = vectors(fast, 8)
    for scale in (1.0, 30.0, 1000.0):
        P = torch.from_numpy(fast.kernels.probabilities(scale * y, None))[:, :CLASSES]
        Z = fast.form.train @ (scale * y).view(-1, CLASSES)
        assert torch.allclose(P, Z.softmax(1), rtol=1e-9 * scale, atol=1e-300)


def test_the_exponential_keeps_its_digits():
    _, fast = oracles_of(problem_of("dense", 8))
    _, y, _ = vectors(fast, 8)
    P = torch.from_numpy(fast.kernels.probabilities(y, None))[:, :CLASSES]
    truth = (fast.form.train @ y.view(-1, CLASSES)).softmax(1)
    assert (P / truth - 1).abs().max() <= 1e-13


@every_layout
def test_the_form_of_a_matrix_keeps_its_values(layout):
    X = matrix(layout, np.random.default_rng(9), 3000)
    if layout == "wide":
        X = X[:50].toarray()
    found = forms.fastest(X)
    if layout == "dense":
        assert found is X
        return
    S = scipy.sparse.csr_array((found[2], found[1], found[0]), X.shape).toarray()
    assert np.abs(S + (found[3] if len(found) == 4 else 0) - X).max() <= 1e-15
    assert forms.work(found) < 0.4 * X.size


def test_a_background_that_only_some_rows_have_is_no_background():
    rng = np.random.default_rng(10)
    X = rng.standard_normal((20_000, 4))
    X[:: 20_000 // 1000] = 0  # just the rows that are looked at
    assert forms.fastest(X) is X


def test_the_kernels_are_taken_for_large_problems_only(monkeypatch):
    small = problem_of("dense", 11)
    assert type(make_oracle(small)) is SoftmaxOracle
    large = problem_of("dense", 11, n=10_000)
    assert type(make_oracle(large)) is CompiledSoftmaxOracle
    monkeypatch.setattr("bilevel.models.softmax.compiled_oracle.available", lambda: False)
    assert type(make_oracle(large)) is SoftmaxOracle


def test_many_classes_and_other_types_are_left_to_torch():
    large = problem_of("dense", 12, n=10_000).closed_form
    assert worth_compiling(large)
    half = bilevel.softmax_problem(
        (large.train.bfloat16(), large.train_labels),
        (large.validation.bfloat16(), large.validation_labels),
        weights=bilevel.SigmoidWeights(),
        penalty=bilevel.Ridge(0.1),
    )
    assert not worth_compiling(half.closed_form)
    many = bilevel.softmax_problem(
        (large.train, large.train_labels),
        (large.validation, large.validation_labels),
        weights=bilevel.SigmoidWeights(),
        penalty=bilevel.Ridge(0.1),
        classes=13,
    )
    assert not worth_compiling(many.closed_form)


def test_stocbio_takes_the_same_steps_with_and_without_the_kernels(monkeypatch):
    problem = problem_of("background", 13, n=10_000)
    algorithm = bilevel.algorithms.StocBiO(
        inner_steps=7, inner_lr=0.1, neumann_terms=5, neumann_lr=0.1, batch=20, outer_lr=1.0
    )
    fast = bilevel.minimize(problem, algorithm, steps=4, seed=3)
    monkeypatch.setattr("bilevel.models.softmax.compiled_oracle.available", lambda: False)
    slow = bilevel.minimize(problem, algorithm, steps=4, seed=3)
    assert_near(fast.x, slow.x, 1e-10)
    assert_near(fast.y, slow.y, 1e-10)
    assert fast.counts == slow.counts


def test_without_numba_a_large_problem_is_solved_by_torch():
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import torch, bilevel
from bilevel.oracles import SoftmaxOracle, make_oracle
X, b = torch.randn(3000, 100), torch.arange(3000) % 3
problem = bilevel.softmax_problem(
    (X, b), (X, b), weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1))
assert type(make_oracle(problem)) is SoftmaxOracle
bilevel.minimize(problem, bilevel.algorithms.StocBiO(), steps=2)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_kernels_work_where_nothing_can_be_written(monkeypatch):
    def without_cache(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr("bilevel.kernels.kernel.njit", without_cache)
    assert kernel(print, fastmath=True) == (print, {"nogil": True, "fastmath": True})


def test_a_regression_of_one_class_or_one_row_is_no_special_case():
    rng = np.random.default_rng(14)
    X = torch.from_numpy(rng.standard_normal((1, 3)))
    kernels = Regression(X, torch.zeros(1, dtype=torch.int64), 2)
    found = kernels.gradient(torch.zeros(6).double(), np.ones(1), np.zeros(3), None).view(3, 2)
    assert_near(found, X.T @ torch.tensor([[-0.5, 0.5]]).double(), 1e-14)
