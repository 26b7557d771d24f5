"""The compiled kernels of softmax regression equal the closed forms in torch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import bilevel
import bilevel.oracles
from bilevel.models.softmax.compiled import forms
from bilevel.models.softmax.compiled.regression import Regression
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle, worth_compiling
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.oracles import do, make
from bilevel.oracles.plans import Contract, Descend, Retrace, Step, Sweep, Trace

from ...truth import forked
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


def by_both(plan, fast, slow):
    """What the kernels make of it, and what torch does."""
    found = fast.accelerate(plan)
    assert found is not None
    return found, plan.plainly(slow)


def answers(oracle, x, y, v, rows, outer_rows):
    around = oracle.linearize(x, y, rows)
    hvp, cross = around.both(v)
    value, gradient = oracle.inner(x, y, rows).value_and_gradient()
    return {
        "outer value": oracle.outer(x, y, outer_rows).value(),
        "outer gradient": oracle.outer(x, y, outer_rows).gradient()[1],
        "inner value": oracle.inner(x, y, rows).value(),
        "value": value,
        "gradient with value": gradient,
        "gradient": oracle.inner(x, y, rows).gradient(),
        "gradient again": around.gradient(),
        "gradient by x": oracle.inner(x, y, rows).gradient_x(),
        "gradient by x again": around.gradient_x(),
        "hvp": around.hvp(v),
        "cross": around.cross(v),
        "hvp with cross": hvp,
        "cross with hvp": cross,
        "diagonal": around.diagonal(),
        "approximate inverse": around.inverse()(v),
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
    assert_near(*by_both(Descend(x, y, steps), fast, slow), 1e-10)


@every_layout
@reproducible
@given(seeds, penalties)
def test_steps_on_all_rows_are_those_of_torch(layout, seed, penalty):
    slow, fast = oracles_of(problem_of(layout, seed, penalty))
    x, y, _ = vectors(slow, seed)
    steps = [Step(None, 0.1), Step(None, 0.3), Step(None, 0.2)]
    assert_near(*by_both(Descend(x, y, steps), fast, slow), 1e-10)


@every_layout
@reproducible
@given(seeds, penalties, st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_neumann_factors_on_batches_are_those_of_torch(layout, seed, penalty, sizes):
    slow, fast = oracles_of(problem_of(layout, seed, penalty))
    x, y, v = vectors(slow, seed)
    batches = rows_of(seed, 151, *sizes)
    plan = Contract(x, y, v, batches, 0.2)
    for found, expected in zip(*by_both(plan, fast, slow), strict=True):
        assert_near(found, expected, 1e-10)


@pytest.mark.parametrize("layout", ["background", "wide"])
def test_single_precision_is_as_near_to_the_truth_as_torchs(layout):
    exact = SoftmaxOracle(problem_of(layout, 3).model.form)
    slow, fast = oracles_of(problem_of(layout, 3, dtype=np.float32))
    x, y, v = vectors(slow, 3)
    batches = rows_of(3, 151, 7, 1, 20)
    steps = [Step(rows, 0.1) for rows in batches]

    def all_of(oracle, *at):
        found = answers(oracle, *at, None, None)
        del found["approximate inverse"]  # where a factorisation may fail
        return found | {
            "steps": do(Descend(*at[:2], steps), oracle),
            "factors": do(Contract(*at, batches, 0.2), oracle)[1],
        }

    truth = all_of(exact, x.double(), y.double(), v.double())
    there, here = all_of(slow, x, y, v), all_of(fast, x, y, v)
    for name, expected in truth.items():
        size = expected.norm()
        ours, theirs = ((found[name].double() - expected).norm() for found in (here, there))
        assert ours <= 4 * theirs + 1e-6 * size, name


def there_and_back(oracle, x, y, r, steps):
    path = do(Trace(x, y, steps), oracle)
    sweep = do(Retrace(x, path[:-1], steps, Sweep(r, 2 * r, x.clone())), oracle)
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
    monkeypatch.setattr("bilevel.models.softmax.compiled.on_rows._WORTH_A_THREAD", 1)
    monkeypatch.setattr("bilevel.models.softmax.compiled.on_rows._AT_ONCE", 1)
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
        assert_near(*by_both(Descend(x, y, equal), fast, slow), 1e-10)
        steps = [Step(rows, 0.1 + 0.1 * t) for t, rows in enumerate(batches)]
        assert_near(*by_both(Descend(x, y, steps), fast, slow), 1e-10)
        plan = Contract(x, y, v, batches, 0.3)
        for found, truth in zip(do(plan, fast), plan.plainly(slow), strict=True):
            assert_near(found, truth, 1e-10)
        truth = there_and_back(slow, x, y, v, steps)
        for name, found in there_and_back(fast, x, y, v, steps).items():
            assert_near(found, truth[name], 1e-10, name)


@every_layout
def test_what_is_given_is_not_written_to(layout):
    _, fast = oracles_of(problem_of(layout, 6))
    given_vectors = vectors(fast, 6)
    x, y, v = (vector.clone() for vector in given_vectors)
    batches = rows_of(6, 151, 3, 8)
    do(Descend(x, y, [Step(rows, 0.5) for rows in batches]), fast)
    do(Contract(x, y, v, batches, 0.5), fast)
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
    assert not fast.inner(x, y).gradient().isfinite().all()
    assert not fast.inner(x, y).value().isfinite()
    assert not fast.linearize(x, y).hvp(v).isfinite().all()
    plan = Descend(x, y, [Step(rows, 0.1) for rows in batches])
    assert not fast.accelerate(plan).isfinite().all()


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
    assert len(found[3]) == (X.shape[1] if layout == "background" else 0)
    assert np.abs(S + (found[3] if len(found[3]) else 0) - X).max() <= 1e-15
    assert forms.work(found) < 0.4 * X.size


def test_a_background_that_only_some_rows_have_is_no_background():
    rng = np.random.default_rng(10)
    X = rng.standard_normal((20_000, 4))
    X[:: 20_000 // 1000] = 0  # just the rows that are looked at
    assert forms.fastest(X) is X


def test_the_kernels_are_taken_for_large_problems_only(monkeypatch):
    small = problem_of("dense", 11)
    assert type(make(small)) is SoftmaxOracle
    large = problem_of("dense", 11, n=10_000)
    assert type(make(large)) is CompiledSoftmaxOracle
    monkeypatch.setattr("bilevel.models.softmax.compiled_oracle.usable", lambda: False)
    assert type(make(large)) is SoftmaxOracle


def test_many_classes_and_other_types_are_left_to_torch():
    large = problem_of("dense", 12, n=10_000).model.form
    assert worth_compiling(large)
    half = bilevel.softmax_problem(
        (large.train.bfloat16(), large.train_labels),
        (large.validation.bfloat16(), large.validation_labels),
        weights=bilevel.SigmoidWeights(),
        penalty=bilevel.Ridge(0.1),
    )
    assert not worth_compiling(half.model.form)
    many = bilevel.softmax_problem(
        (large.train, large.train_labels),
        (large.validation, large.validation_labels),
        weights=bilevel.SigmoidWeights(),
        penalty=bilevel.Ridge(0.1),
        classes=13,
    )
    assert not worth_compiling(many.model.form)


def test_stocbio_takes_the_same_steps_with_and_without_the_kernels(monkeypatch):
    problem = problem_of("background", 13, n=10_000)
    algorithm = bilevel.algorithms.StocBiO(
        inner_steps=7, inner_lr=0.1, neumann_terms=5, neumann_lr=0.1, batch=20, outer_lr=1.0
    )
    fast = bilevel.minimize(problem, algorithm, steps=4, seed=3)
    monkeypatch.setattr("bilevel.models.softmax.compiled_oracle.usable", lambda: False)
    slow = bilevel.minimize(problem, algorithm, steps=4, seed=3)
    assert_near(fast.x, slow.x, 1e-10)
    assert_near(fast.y, slow.y, 1e-10)
    assert fast.counts == slow.counts


def test_without_numba_a_large_problem_is_solved_by_torch(tmp_path):
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import torch, bilevel
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.oracles import make
X, b = torch.randn(3000, 100), torch.arange(3000) % 3
problem = bilevel.softmax_problem(
    (X, b), (X, b), weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1))
assert type(make(problem)) is SoftmaxOracle
bilevel.minimize(problem, bilevel.algorithms.StocBiO(), steps=2)
"""
    ended = forked.begin(tmp_path, "-c", code).end()
    assert ended.code == 0, ended.err


def test_a_regression_of_one_class_or_one_row_is_no_special_case():
    rng = np.random.default_rng(14)
    X = torch.from_numpy(rng.standard_normal((1, 3)))
    kernels = Regression(X, torch.zeros(1, dtype=torch.int64), 2)
    found = kernels.gradient(torch.zeros(6).double(), np.ones(1), np.zeros(3), None).view(3, 2)
    assert_near(found, X.T @ torch.tensor([[-0.5, 0.5]]).double(), 1e-14)
