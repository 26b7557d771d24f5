"""The batches that the sampled solvers draw: fresh, of the right size, independent, unbiased."""

import itertools

import pytest
import scipy.stats
import torch
from bilevel.linear import MatrixHessian, Neumann, RandomTruncation, SampledNeumann

import bilevel

CONFIDENCE = 0.9999


class RevealingHessian(MatrixHessian):
    """Matrix i is n·e_i e_i', so that each sampled product shows the rows of its batch."""

    def __init__(self, rows, seed=0):
        eye = torch.eye(rows, dtype=torch.float64)
        super().__init__(rows * torch.einsum("ij,ik->ijk", eye, eye), seed)
        self.batches = []

    def sampled_product(self, v, batch):
        assert bool((v != 0).all()), "or a row could hide"
        product = super().sampled_product(v, batch)
        self.batches.append(tuple(product.nonzero()[:, 0].tolist()))
        return product


class OneBatchHessian(MatrixHessian):
    """The fault to be told apart: one batch for all the products of a solve."""

    def __init__(self, stack, row):
        super().__init__(stack)
        self._row = stack[row]

    def sampled_product(self, v, batch):
        return self._row @ v


@pytest.fixture(scope="module")
def finite_sum(spd):
    parts = [spd(torch.tensor([1.0, 4.0]), seed=seed) for seed in range(3)]
    return torch.stack([H for H, _ in parts]), torch.tensor([1.0, -2.0], dtype=torch.float64)


def draws(solver, hessian, b, count):
    return torch.stack([solver.solve(hessian, b).v for _ in range(count)])


def surprise(samples, outcomes, weights):
    """How unlikely the samples' mean and spread are, if these outcomes have these weights.

    It is N d'S⁻¹d, where d is the difference of the means of (v, ‖v − E v‖²) and S the exact
    covariance of the latter: χ² distributed, if the samples come from the outcomes.
    """
    centre = weights @ outcomes

    def features(v):
        return torch.cat([v, (v - centre).square().sum(1, keepdim=True)], dim=1)

    mean = weights @ features(outcomes)
    centred = features(outcomes) - mean
    d = features(samples).mean(0) - mean
    S = centred.T @ (weights[:, None] * centred)
    return float(len(samples) * d @ torch.linalg.solve(S, d))


def threshold(dimension):
    return scipy.stats.chi2.ppf(CONFIDENCE, dimension)


def products(stack, b, lr, choices):
    """r_0, r_1, ... with r_{j+1} = (I − η H_{i_j}) r_j, by hand."""
    r, found = b, [b]
    for i in choices:
        r = r - lr * (stack[i] @ r)
        found.append(r)
    return found


def sampled_outcomes(stack, b, terms, lr):
    """All that SampledNeumann on single rows can give, with the probabilities."""
    choices = list(itertools.product(range(len(stack)), repeat=terms))
    values = torch.stack([lr * sum(products(stack, b, lr, each)) for each in choices])
    return values, torch.full((len(choices),), 1 / len(choices), dtype=torch.float64)


def truncated_outcomes(stack, b, terms, lr):
    """The same of RandomTruncation."""
    values, weights = [], []
    for end in range(terms):
        for each in itertools.product(range(len(stack)), repeat=end):
            values.append(terms * lr * products(stack, b, lr, each)[-1])
            weights.append(1 / terms / len(stack) ** end)
    return torch.stack(values), torch.tensor(weights, dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1])
def test_mean_of_sampled_neumann_is_neumann_within_its_confidence_interval(finite_sum, seed):
    stack, b = finite_sum
    solver = SampledNeumann(terms=3, lr=0.25, batch=1)
    outcomes, weights = sampled_outcomes(stack, b, 3, 0.25)
    neumann = Neumann(3, 0.25).solve(MatrixHessian(stack), b).v
    torch.testing.assert_close(weights @ outcomes, neumann, rtol=1e-13, atol=0)
    samples = draws(solver, MatrixHessian(stack, seed), b, 2000)
    assert surprise(samples, outcomes, weights) <= threshold(3)


@pytest.mark.parametrize("seed", [0, 1])
def test_mean_of_random_truncation_is_its_series_within_its_confidence_interval(finite_sum, seed):
    stack, b = finite_sum
    solver = RandomTruncation(terms=4, lr=0.25, batch=1)
    outcomes, weights = truncated_outcomes(stack, b, 4, 0.25)
    series = Neumann(3, 0.25).solve(MatrixHessian(stack), b).v
    torch.testing.assert_close(weights @ outcomes, series, rtol=1e-13, atol=0)
    samples = draws(solver, MatrixHessian(stack, seed), b, 2000)
    assert surprise(samples, outcomes, weights) <= threshold(3)


def test_the_interval_tells_one_shared_batch_from_independent_ones(finite_sum):
    stack, b = finite_sum
    solver = SampledNeumann(terms=3, lr=0.25, batch=1)
    rows = torch.randint(3, (2000,), generator=torch.Generator().manual_seed(0)).tolist()
    each = [solver.solve(OneBatchHessian(stack, row), b).v for row in range(3)]
    samples = torch.stack([each[row] for row in rows])
    assert surprise(samples, *sampled_outcomes(stack, b, 3, 0.25)) > 10 * threshold(3)


def test_each_product_of_sampled_neumann_draws_a_batch_of_its_own_size():
    hessian = RevealingHessian(rows=40)
    solver = SampledNeumann(terms=5, lr=0.005, batch=4, strong_convexity=60.0)
    solver.solve(hessian, torch.ones(40).double())
    assert (
        [len(batch) for batch in hessian.batches]
        == solver.batch_sizes(40, 0.005)
        == [20, 14, 10, 7, 5]
    )
    # Fresh draws are not parts of one another; a batch cut from the last one would be.
    assert not any(set(b) <= set(a) for a, b in itertools.pairwise(hessian.batches))


@pytest.mark.parametrize(
    "solver",
    [SampledNeumann(8, 0.005, batch=5), RandomTruncation(8, 0.005, batch=5)],
    ids=["sampled", "truncated"],
)
def test_no_two_products_share_a_batch(solver):
    hessian = RevealingHessian(rows=40)
    for _ in range(4):
        solver.solve(hessian, torch.ones(40).double())
    assert len(hessian.batches) >= 8
    assert all(len(batch) == 5 for batch in hessian.batches)
    # Two of 658,008 possible batches coincide by chance once in some thousand seeds.
    assert len(set(hessian.batches)) == len(hessian.batches)


def test_successive_single_rows_are_independent_and_uniform():
    hessian = RevealingHessian(rows=3)
    for _ in range(600):
        SampledNeumann(3, 0.05, batch=1).solve(hessian, torch.ones(3).double())
    rows = torch.tensor(hessian.batches).view(600, 3)
    pairs = rows[:, 0] * 9 + rows[:, 1] * 3 + rows[:, 2]
    counts = torch.bincount(pairs, minlength=27)
    statistic = float((counts - 600 / 27).square().sum() / (600 / 27))
    assert statistic <= threshold(26)


def test_same_seed_gives_the_same_batches_and_another_seed_others():
    def batches(seed):
        hessian = RevealingHessian(rows=30, seed=seed)
        SampledNeumann(6, 0.01, batch=3).solve(hessian, torch.ones(30).double())
        return hessian.batches

    assert batches(7) == batches(7)
    assert batches(7) != batches(8)


def test_end_of_the_truncation_does_not_depend_on_the_rows_drawn():
    """Streams are separate by role: more rows drawn must not move p."""
    ends = []
    for batch in (1, 5):
        hessian = RevealingHessian(rows=40)
        solver = RandomTruncation(10, 0.005, batch)
        ends.append([solver.solve(hessian, torch.ones(40).double()).steps for _ in range(20)])
    assert ends[0] == ends[1]
    assert set(ends[0]) <= set(range(10))


def test_end_of_the_truncation_is_uniform():
    hessian = MatrixHessian(torch.eye(1, dtype=torch.float64), seed=3)
    solver = RandomTruncation(5, 0.5, None)
    ends = torch.tensor([solver.solve(hessian, torch.ones(1).double()).steps for _ in range(2000)])
    counts = torch.bincount(ends, minlength=5)
    assert len(counts) == 5
    assert float((counts - 400).square().sum() / 400) <= threshold(4)


def test_batch_larger_than_the_data_raises_with_both_numbers():
    hessian = RevealingHessian(rows=4)
    for solver in (SampledNeumann(2, 0.05, batch=5), RandomTruncation(50, 0.001, batch=5)):
        with pytest.raises(ValueError, match=r"batch of 5 rows.*'hessian'.*only 4"):
            solver.solve(hessian, torch.ones(4).double())


def test_hypergradient_asks_the_loss_for_a_fresh_batch_at_each_hessian_product():
    seen = []

    def inner(x, y, batch):
        seen.append(tuple(batch.index.tolist()))
        return 0.5 * (batch.data.mean(0) * (y - x) ** 2).sum()

    data = torch.linspace(1, 2, 120, dtype=torch.float64).view(60, 2)
    problem = bilevel.Problem(
        outer=lambda x, y: y.sum(),
        inner=inner,
        x0=torch.zeros(2).double(),
        y0=torch.ones(2).double(),
        inner_data=data,
    )
    solver = SampledNeumann(terms=5, lr=0.5, batch=3)
    batches = []
    for seed in (0, 0, 1):
        seen.clear()
        method = bilevel.AID(solver, bilevel.BatchSizes(cross=4))
        bilevel.hypergradient(problem, problem.x0, problem.y0, method=method, seed=seed)
        batches.append([rows for rows in seen if len(rows) < 60])
    assert [len(rows) for rows in batches[0]] == [3] * 5 + [4]
    assert len(set(batches[0])) == 6
    assert batches[0] == batches[1]
    assert not set(batches[0]) & set(batches[2])
