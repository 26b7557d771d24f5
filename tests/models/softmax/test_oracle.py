"""The closed forms of softmax regression equal automatic differentiation.

How "equal" is measured: a derivative here is a sum of terms X_ij s_i (P_ik − Y_ik) and the like,
and where a row is classified with near certainty, P_ik − Y_ik is the difference of two numbers
near 1 whose rounding error, not their difference, is of the order 1e-16. Autograd subtracts them
too. So no float64 formula of this kind is right to 1e-12 of the *result*; both are right to
1e-12 of the *sum of the absolute values of the terms*, component by component, and that is
what is asserted. (A floor of 1e-290 forgives products that underflow.) At ordinary logits
nothing cancels, and a test below asks for 1e-12 of the result itself.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import bilevel
from bilevel.models.softmax.design import design
from bilevel.models.softmax.model import SoftmaxModel
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.oracles import make

from .softmax_cases import (
    LEARNED,
    Case,
    answers,
    cases,
    cross_size,
    hvp_size,
    inner_parts,
    make_case,
    sizes,
)

_UNDERFLOW = 1e-290
reproducible = settings(derandomize=True, database=None, deadline=None, max_examples=60)
both_layouts = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
every_kind = pytest.mark.parametrize("learned", LEARNED, ids=str)


@settings(reproducible, max_examples=150)
@given(cases)
def test_every_answer_equals_autograds_within_1e_12_of_the_terms_size(case: Case) -> None:
    closed, autograd = (answers(oracle, case) for oracle in case.oracles())
    for name, size in sizes(case, autograd).items():
        assert closed[name].shape == autograd[name].shape, name
        error = (closed[name] - autograd[name]).abs()
        assert (error <= 1e-12 * size + _UNDERFLOW).all(), (name, error, size)


@both_layouts
@every_kind
def test_at_ordinary_logits_answers_are_equal_within_1e_12_of_the_result(
    learned: tuple[str, Any], sparse: bool
) -> None:
    for seed, batched in enumerate((False, True, True)):
        case = make_case(seed, (40, 30, 7, 4), learned, sparse=sparse, batched=batched)
        closed, autograd = (answers(oracle, case) for oracle in case.oracles())
        for name, truth in autograd.items():
            assert (closed[name] - truth).norm() <= 1e-12 * truth.norm(), name


@reproducible
@given(cases)
def test_diagonal_is_the_dense_hessians(case: Case) -> None:
    closed, autograd = (oracle.linearize(case.x, case.y, case.rows) for oracle in case.oracles())
    H = torch.stack([autograd.hvp(column) for column in torch.eye(len(case.y)).double()])
    # P (1 − P) cancels where P is near 1: its size is P (1 + P), as in the products above.
    of = inner_parts(case)
    size = of.X.square().T @ (of.s * of.P * (1 + of.P)) + 2 * of.c
    error = (closed.diagonal() - H.diagonal()).abs().view_as(size)
    assert (error <= 1e-12 * size + _UNDERFLOW).all(), (error, size)


@reproducible
@given(cases, st.integers(0, 2**32 - 1))
def test_hvp_is_symmetric(case: Case, seed: int) -> None:
    around = case.oracles()[0].linearize(case.x, case.y, case.rows)
    u = torch.randn(len(case.v), generator=torch.Generator().manual_seed(seed)).double()
    size = u.abs() @ hvp_size(case) + case.v.abs() @ hvp_size(dataclasses.replace(case, v=u))
    assert (u @ around.hvp(case.v) - case.v @ around.hvp(u)).abs() <= 1e-12 * size


@reproducible
@given(cases)
def test_hessian_is_at_least_the_ridge(case: Case) -> None:
    """v'Hv ≥ 2c‖v‖²: cross-entropy is convex, so the penalty bounds the curvature below."""
    form = case.problem.model.form
    _, x_penalties = form.split(case.problem.x_structure.unflatten(case.x))
    V = case.v.view(form.shape)
    bound = (2 * form.penalty.coefficients(x_penalties, case.y.view(form.shape)) * V * V).sum()
    around = case.oracles()[0].linearize(case.x, case.y, case.rows)
    assert case.v @ around.hvp(case.v) >= bound - 1e-12 * (case.v.abs() @ hvp_size(case))
    assert bound > 0


@both_layouts
@every_kind
def test_float32_is_right_to_its_own_precision(learned: tuple[str, Any], sparse: bool) -> None:
    shape, eps = (20, 15, 5, 4), torch.finfo(torch.float32).eps
    single = make_case(3, shape, learned, sparse=sparse, dtype=np.float32)
    # The same float32 numbers in double precision, so that only the arithmetic differs.
    double = make_case(3, shape, learned, sparse=sparse)
    form = single.problem.model.form
    exact = dataclasses.replace(
        double.problem.model.form,
        train=form.train.double(),
        validation=form.validation.double(),
        weights=form.weights.double() if isinstance(form.weights, Tensor) else form.weights,
    )
    double.problem.model = SoftmaxModel(exact)
    point = {name: getattr(single, name).double() for name in ("x", "y", "v")}
    double = dataclasses.replace(double, **point)
    got, truth = answers(single.oracles()[0], single), answers(SoftmaxOracle(exact), double)
    for name, size in sizes(double, truth).items():
        assert got[name].dtype == torch.float32, name
        assert ((got[name] - truth[name]).abs() <= 20 * eps * size).all(), name


@pytest.mark.parametrize("logits", [1.0, 30.0, 1000.0])
def test_products_equal_fifty_digit_arithmetic(logits: float) -> None:
    """Agreement with autograd could be a shared error: at extreme logits, compare with Decimal."""
    case = make_case(5, (5, 2, 3, 3), ("sigmoid", bilevel.Ridge(1e-9)), logits=logits)
    around = case.oracles()[0].linearize(case.x, case.y)
    found = {"hvp": around.hvp(case.v), "cross": around.cross(case.v)}
    with localcontext() as context:
        context.prec = 50
        hvp, cross = _decimal_products(case)
        for name, truth in (("hvp", hvp), ("cross", cross)):
            error = [abs(Decimal(a) - b) for a, b in zip(found[name].tolist(), truth, strict=True)]
            size = {"hvp": hvp_size, "cross": cross_size}[name](case).tolist()
            assert all(e <= Decimal("1e-13") * Decimal(s) for e, s in zip(error, size, strict=True))


def _decimal_products(case: Case) -> tuple[list[Decimal], list[Decimal]]:
    form = case.problem.model.form
    p, c = form.shape

    def exact(tensor: Tensor) -> Any:
        return np.vectorize(Decimal)(np.array(tensor.tolist(), dtype=object))

    X, W, V = exact(form.train), exact(case.y.view(p, c)), exact(case.v.view(p, c))
    s = [1 / (1 + (-value).exp()) for value in exact(case.x)]
    hvp, cross = 2 * Decimal(form.penalty.strength) * V, []
    for a, weight, label in zip(X, s, form.train_labels.tolist(), strict=True):
        z, u = a @ W, a @ V
        e = np.array([(entry - max(z)).exp() for entry in z])
        P = e / e.sum()
        hvp = hvp + weight / len(X) * np.outer(a, P * (u - P @ u))
        cross.append(weight * (1 - weight) * (P @ u - u[label]) / len(X))
    return list(hvp.reshape(-1)), cross


@reproducible
@given(cases, st.integers(0, 2**32 - 1))
def test_approximate_inverse_is_symmetric_and_positive_definite(case: Case, seed: int) -> None:
    apply = case.oracles()[0].linearize(case.x, case.y, case.rows).inverse()
    u = torch.randn(len(case.v), generator=torch.Generator().manual_seed(seed)).double()
    Mu, Mv = apply(u), apply(case.v)
    # Rounding grows with the condition number, which the smallest penalties take to about 1e6.
    assert (u @ Mv - case.v @ Mu).abs() <= 1e-9 * (u.norm() * Mv.norm() + case.v.norm() * Mu.norm())
    assert u @ Mu > 0


def test_softmax_problems_are_served_by_the_closed_form() -> None:
    case = make_case(0, (3, 2, 2, 2), LEARNED[0])
    assert isinstance(make(case.problem), SoftmaxOracle)


def test_csr_entries_given_twice_are_added() -> None:
    """A CSR matrix need not be canonical: [1 + 2] in one place is 3, also when squared."""
    twice = scipy.sparse.csr_array(
        (np.array([1.0, 2.0, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2)
    )
    labels = np.array([0, 1])
    diagonals = []
    for rows in (twice, twice.toarray()):
        problem = bilevel.softmax_problem(
            (rows, labels),
            (rows, labels),
            penalty=bilevel.Ridge(1.0),
            weights=bilevel.SigmoidWeights(),
        )
        x, y = torch.zeros(2).double(), torch.arange(4).double()
        diagonals.append(make(problem).linearize(x, y).diagonal())
    torch.testing.assert_close(diagonals[0], diagonals[1], rtol=1e-14, atol=0.0)


def test_a_sample_is_taken_once_until_another_is_asked_for() -> None:
    X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).double()
    whole, rows = design(X), torch.tensor([1, 4, 7, 9])
    sample = whole.take(rows)
    assert whole.take(rows) is sample
    assert torch.equal(sample.gram(), X[rows].T @ X[rows] / 4)
    other = torch.tensor([0, 2])
    assert torch.equal(whole.take(other).gram(), X[other].T @ X[other] / 2)
    assert torch.equal(whole.take(rows).gram(), sample.gram())
