"""The sampled solvers: exact expectations and variances by enumeration of all their batches."""

import itertools
import math

import pytest
import torch
from bilevel.linear import MatrixHessian, Neumann, RandomTruncation, SampledNeumann

ROWS = 4


class ScriptedHessian(MatrixHessian):
    """A finite sum whose "random" choices are written down beforehand."""

    def __init__(self, stack, batches, end=None):
        super().__init__(stack)
        self.stack, self.batches, self.end = stack, list(batches), end
        self.streams.below = self._below

    def sampled_product(self, v, batch):
        rows = self.batches.pop(0)
        assert len(rows) == batch
        return self.stack[list(rows)].mean(0) @ v

    def _below(self, bound):
        assert 0 <= self.end < bound
        return self.end


def outcomes(solver, stack, b, sizes, end=None):
    """v for every sequence of batches of these sizes: all are equally likely."""
    batches = (itertools.combinations(range(len(stack)), size) for size in sizes)
    hessians = [ScriptedHessian(stack, each, end) for each in itertools.product(*batches)]
    found = torch.stack([solver.solve(hessian, b).v for hessian in hessians])
    assert all(not hessian.batches for hessian in hessians), "every batch must be used"
    return found


def truncated_outcomes(solver, stack, b):
    """v for every end p and every sequence of p batches, with each one's probability."""
    found, weights = [], []
    for end in range(solver.terms):
        values = outcomes(solver, stack, b, [solver.batch] * end, end)
        found.append(values)
        weights += [1 / solver.terms / len(values)] * len(values)
    return torch.cat(found), torch.tensor(weights, dtype=torch.float64)


@pytest.fixture(scope="module")
def finite_sum(spd):
    """Matrices between μ = 1 and L = 4 that do not commute, and b."""
    parts = [spd(torch.tensor([1.0, 1.5 + seed / 2, 4.0]), seed=seed) for seed in range(ROWS)]
    return torch.stack([H for H, _ in parts]), parts[0][1]


SAMPLED = [
    pytest.param(SampledNeumann(terms=0, lr=0.25, batch=1), id="no term"),
    pytest.param(SampledNeumann(terms=3, lr=0.25, batch=1), id="single rows"),
    pytest.param(SampledNeumann(terms=3, lr=0.2, batch=2), id="equal batches"),
    pytest.param(SampledNeumann(terms=2, lr=0.25, batch=1, strong_convexity=1.0), id="2 decaying"),
    pytest.param(SampledNeumann(terms=3, lr=0.25, batch=1, strong_convexity=1.0), id="3 decaying"),
]


@pytest.mark.parametrize("solver", SAMPLED)
def test_expectation_of_sampled_neumann_is_neumann_with_the_mean_hessian(finite_sum, solver):
    stack, b = finite_sum
    found = outcomes(solver, stack, b, solver.batch_sizes(ROWS, solver.lr))
    truth = Neumann(solver.terms, solver.lr).solve(MatrixHessian(stack), b).v
    torch.testing.assert_close(found.mean(0), truth, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("solver", SAMPLED)
def test_bias_of_sampled_neumann_is_within_proposition_3(finite_sum, solver):
    stack, b = finite_sum
    found = outcomes(solver, stack, b, solver.batch_sizes(ROWS, solver.lr))
    bias = found.mean(0) - torch.linalg.solve(stack.mean(0), b)
    assert bias.norm() <= (1 - solver.lr * 1.0) ** (solver.terms + 1) * b.norm() / 1.0


@pytest.mark.parametrize("terms", range(4))
def test_bias_bound_is_reached_by_a_system_of_one_number(terms):
    stack = torch.tensor([1.0, 3.0]).double()[:, None, None]
    b = torch.tensor([5.0]).double()
    solver = SampledNeumann(terms, lr=0.1, batch=1)
    bias = outcomes(solver, stack, b, [1] * terms).mean(0) - b / 2
    assert -bias.item() == pytest.approx((1 - 0.1 * 2) ** (terms + 1) * 5 / 2, rel=1e-13)


@pytest.mark.parametrize(("terms", "batch"), [(1, 1), (2, 1), (2, 2), (3, 1)])
def test_variance_of_sampled_neumann_is_within_proposition_3(finite_sum, terms, batch):
    stack, b = finite_sum
    lr, mu, L, M = 0.2, 1.0, 4.0, float(b.norm())
    assert batch >= 1 / (terms * (1 - lr * mu) ** (terms - 1)), "what the proposition asks for"
    solver = SampledNeumann(terms, lr, batch, strong_convexity=mu)
    found = outcomes(solver, stack, b, solver.batch_sizes(ROWS, solver.lr))
    errors = found - torch.linalg.solve(stack.mean(0), b)
    variance = float(errors.square().sum(1).mean())
    bound = 4 * (lr * L * M / mu) ** 2 / batch + 4 * (1 - lr * mu) ** (2 * terms + 2) * M**2 / mu**2
    assert 0 < variance <= bound


def test_larger_batches_have_smaller_variance_and_all_rows_have_none(finite_sum):
    stack, b = finite_sum
    spreads = [
        float(outcomes(SampledNeumann(2, 0.2, batch), stack, b, [batch] * 2).var(0).sum())
        for batch in (1, 2, 3)
    ]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] > 1e-4
    assert len(outcomes(SampledNeumann(2, 0.2, ROWS), stack, b, [ROWS] * 2)) == 1


def test_one_batch_for_all_products_would_be_biased(finite_sum):
    stack, b = finite_sum
    solver = SampledNeumann(terms=3, lr=0.25, batch=1)
    shared = torch.stack(
        [solver.solve(ScriptedHessian(stack, [(row,)] * 3), b).v for row in range(ROWS)]
    )
    truth = Neumann(3, 0.25).solve(MatrixHessian(stack), b).v
    assert (shared.mean(0) - truth).norm() > 1e-2 * truth.norm()


@pytest.mark.parametrize(("terms", "batch"), [(1, 1), (2, 3), (3, 2), (4, 1)])
def test_expectation_of_random_truncation_is_the_series_of_q_minus_1(finite_sum, terms, batch):
    stack, b = finite_sum
    found, weights = truncated_outcomes(RandomTruncation(terms, 0.25, batch), stack, b)
    step = torch.eye(3, dtype=torch.float64) - 0.25 * stack.mean(0)
    truth = 0.25 * sum(torch.linalg.matrix_power(step, i) @ b for i in range(terms))
    torch.testing.assert_close(weights @ found, truth, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("terms", [1, 2, 4])
def test_bias_of_random_truncation_is_that_of_proposition_3_with_a_term_less(finite_sum, terms):
    stack, b = finite_sum
    found, weights = truncated_outcomes(RandomTruncation(terms, 0.25, 1), stack, b)
    bias = weights @ found - torch.linalg.solve(stack.mean(0), b)
    assert bias.norm() <= (1 - 0.25) ** terms * b.norm()


@pytest.mark.parametrize("terms", [1, 2, 4])
def test_random_truncation_is_of_expected_size_m_over_mu_at_most(finite_sum, terms):
    """Ghadimi & Wang (2018), Lemma 3.2: E‖v‖ ≤ M/μ."""
    stack, b = finite_sum
    found, weights = truncated_outcomes(RandomTruncation(terms, 0.25, 1), stack, b)
    assert float(weights @ found.norm(dim=1)) <= float(b.norm())


def test_variance_of_random_truncation_does_not_vanish_with_the_batch(finite_sum):
    stack, b = finite_sum
    terms, lr, H = 6, 0.25, stack.mean(0)
    step = torch.eye(3, dtype=torch.float64) - lr * H
    ends = [terms * lr * torch.linalg.matrix_power(step, p) @ b for p in range(terms)]
    found, weights = truncated_outcomes(RandomTruncation(terms, lr, ROWS), stack, b)
    torch.testing.assert_close(found, torch.stack(ends), rtol=1e-13, atol=1e-14)
    variance = float(weights @ (found - weights @ found).square().sum(1))
    assert variance > 0.1 * float(b.norm()) ** 2


def test_random_truncation_says_how_many_products_it_took(finite_sum):
    stack, b = finite_sum
    for end in range(4):
        hessian = ScriptedHessian(stack, [(0,)] * end, end)
        solution = RandomTruncation(4, 0.25, 1).solve(hessian, b)
        assert (solution.status, solution.steps) == ("step_limit", end)
        assert not hessian.batches


@pytest.mark.parametrize("rows", [7, 50, 10_000])
@pytest.mark.parametrize(("terms", "lr", "batch", "mu"), [(5, 0.5, 3, 0.4), (12, 0.1, 20, 5.0)])
def test_batch_sizes_are_those_of_proposition_3(terms, lr, batch, mu, rows):
    sizes = SampledNeumann(terms, lr, batch, mu).batch_sizes(rows, lr)
    assert len(sizes) == terms
    for j, size in enumerate(sizes, start=1):  # sizes[j − 1] is |B_{Q+1−j}|, used j-th
        exact = batch * terms * (1 - lr * mu) ** (j - 1)
        assert 1 <= size <= rows
        assert size == min(rows, max(1, math.ceil(exact - 1e-9)))
        assert exact - 1e-9 <= size < exact + 1 or size == rows
    assert sizes == sorted(sizes, reverse=True)


def test_batch_sizes_of_whole_numbers_are_not_rounded_up():
    assert SampledNeumann(3, 0.1, 10, 1.0).batch_sizes(1000, 0.1) == [30, 27, 25]
    assert SampledNeumann(4, 0.2, 125, 1.0).batch_sizes(1000, 0.2) == [500, 400, 320, 256]


def test_tiny_batch_sizes_end_at_one_row_and_large_ones_at_all_rows():
    assert SampledNeumann(6, 0.9, 2, 1.0).batch_sizes(9, 0.9) == [9, 2, 1, 1, 1, 1]


def test_batch_sizes_are_equal_without_strong_convexity_and_none_without_batch():
    assert SampledNeumann(3, 0.5, 4).batch_sizes(100, 0.5) == [4, 4, 4]
    assert SampledNeumann(3, 0.5, None, 1.0).batch_sizes(100, 0.5) == [None] * 3
    assert SampledNeumann(3, 0.5, 4, 1.0).batch_sizes(None, 0.5) == [None] * 3


@pytest.mark.parametrize(("lr", "mu"), [(0.5, 2.0), (1.0, 3.0)])
def test_step_that_leaves_nothing_to_contract_raises(lr, mu):
    with pytest.raises(ValueError, match=rf"below 1, got {lr} · {mu}"):
        SampledNeumann(3, lr, 1, strong_convexity=mu)
