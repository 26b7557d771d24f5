"""Streams of rows: seeded, separate by role and step, uniform, without replacement."""

import itertools
import typing

import numpy as np
import pytest
import scipy.stats
import torch

from bilevel.problem.sampling import BatchSizes, Role, Streams

ROLES = typing.get_args(Role)
CONFIDENCE = 0.9999


def is_uniform(counts):
    """Whether these counts are those of equally likely outcomes, by the χ² test."""
    expected = counts.sum() / counts.size
    statistic = ((counts - expected) ** 2 / expected).sum()
    return statistic <= scipy.stats.chi2.ppf(CONFIDENCE, counts.size - 1)


def draw(seed, step, role, size=3, rows=50, count=5):
    streams = Streams(seed, step, rows, rows)
    return [tuple(streams.rows(role, size).tolist()) for _ in range(count)]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("size", [1, 2, 9, 10])
def test_batch_has_the_asked_number_of_different_rows(role, size):
    streams = Streams(0, 0, 10, 10)
    for _ in range(50):
        rows = streams.rows(role, size)
        assert rows.dtype == torch.int64
        assert len(set(rows.tolist())) == len(rows) == size
        assert set(rows.tolist()) <= set(range(10))


@pytest.mark.parametrize("role", ROLES)
def test_same_seed_and_step_give_the_same_rows(role):
    assert draw(5, 2, role) == draw(5, 2, role)


def test_every_seed_step_and_role_has_rows_of_its_own():
    keys = list(itertools.product(range(3), range(3), ROLES))
    streams = [tuple(draw(seed, step, role)) for seed, step, role in keys]
    assert len(set(streams)) == len(keys)


def test_rows_of_one_role_do_not_depend_on_draws_of_another():
    alone = draw(0, 0, "hessian")
    streams = Streams(0, 0, 50, 50)
    mixed = []
    for _ in range(5):
        streams.rows("inner", 7)
        streams.below(9)
        mixed.append(tuple(streams.rows("hessian", 3).tolist()))
        streams.rows("outer", 1)
        streams.rows("cross", 20)
    assert mixed == alone


def test_end_of_a_series_does_not_depend_on_the_rows_drawn():
    quiet, busy = Streams(0, 0, 50, 50), Streams(0, 0, 50, 50)
    ends = [quiet.below(100) for _ in range(10)]
    for end in ends:
        busy.rows("hessian", 5)
        assert busy.below(100) == end


@pytest.mark.parametrize("role", ROLES)
def test_single_rows_are_uniform_and_successive_ones_independent(role):
    streams = Streams(0, 0, 5, 5)
    rows = np.array([int(streams.rows(role, 1)) for _ in range(3000)])
    assert is_uniform(np.bincount(rows, minlength=5))
    assert is_uniform(np.bincount(rows[0::2] * 5 + rows[1::2], minlength=25))


@pytest.mark.parametrize(
    ("rows", "size"), [(50, 3), (50, 20), (90, 1), (9, 3), (None, 4), (5, None)]
)
def test_several_batches_at_once_are_like_one_after_another(rows, size):
    found = Streams(3, 0, rows, rows).batches("inner", size, 40)
    assert len(found) == 40
    if rows is None or size is None:
        assert found == [None] * 40
        return
    for batch in found:
        assert batch.dtype == torch.int64
        assert len(set(batch.tolist())) == len(batch) == size
        assert set(batch.tolist()) <= set(range(rows))
    assert len({tuple(batch.tolist()) for batch in found}) > 20


def test_batches_at_once_are_uniform_over_all_sets_of_rows():
    counts = dict.fromkeys(itertools.combinations(range(6), 2), 0)
    for batch in Streams(4, 0, 6, 6).batches("hessian", 2, 15_000):
        counts[tuple(sorted(batch.tolist()))] += 1
    assert is_uniform(np.array(list(counts.values())))


def test_batches_at_once_are_independent_of_each_other():
    counts = np.zeros((5, 5))
    for step in range(4000):
        (i,), (j,) = Streams(6, step, 5, 5).batches("inner", 1, 2)
        counts[i, j] += 1
    assert is_uniform(counts)


def test_a_batch_at_once_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="a batch of 7 rows"):
        Streams(0, 0, 6, 6).batches("inner", 7, 2)


def test_batches_are_uniform_over_all_sets_of_rows():
    streams = Streams(1, 0, 5, 5)
    sets = list(itertools.combinations(range(5), 2))
    counts = dict.fromkeys(sets, 0)
    for _ in range(3000):
        counts[tuple(sorted(streams.rows("hessian", 2).tolist()))] += 1
    assert is_uniform(np.array(list(counts.values())))


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(ROLES, 2)])
def test_rows_of_two_roles_at_the_same_step_are_independent(first, second):
    counts = np.zeros((4, 4))
    for step in range(800):
        streams = Streams(0, step, 4, 4)
        counts[int(streams.rows(first, 1)), int(streams.rows(second, 1))] += 1
    assert is_uniform(counts)


@pytest.mark.parametrize("role", ROLES)
def test_end_of_a_series_is_independent_of_the_rows_of_its_step(role):
    counts = np.zeros((4, 4))
    for step in range(800):
        streams = Streams(0, step, 4, 4)
        counts[streams.below(4), int(streams.rows(role, 1))] += 1
    assert is_uniform(counts)


@pytest.mark.parametrize("other", [(0, 1), (1, 0)], ids=["step", "seed"])
def test_rows_of_successive_steps_and_seeds_are_independent(other):
    counts = np.zeros((4, 4))
    for k in range(800):
        here, there = Streams(k, k, 4, 4), Streams(k + other[0], k + other[1], 4, 4)
        counts[int(here.rows("inner", 1)), int(there.rows("inner", 1))] += 1
    assert is_uniform(counts)


def test_end_of_a_series_is_uniform_below_its_bound():
    streams = Streams(0, 0, None, None)
    ends = np.array([streams.below(6) for _ in range(3000)])
    assert ends.min() == 0
    assert is_uniform(np.bincount(ends, minlength=6))
    assert {streams.below(1) for _ in range(5)} == {0}


def test_roles_draw_from_the_data_of_their_own_loss():
    streams = Streams(0, 0, inner_rows=4, outer_rows=9)
    assert {role: streams.available(role) for role in ROLES} == {
        "inner": 4,
        "hessian": 4,
        "cross": 4,
        "curvature": 4,
        "outer": 9,
    }
    assert sorted(streams.rows("outer", 9).tolist()) == list(range(9))


@pytest.mark.parametrize("role", ROLES)
def test_none_and_a_loss_without_data_mean_all_rows(role):
    assert Streams(0, 0, 8, 8).rows(role, None) is None
    assert Streams(0, 0, None, None).rows(role, 3) is None
    assert Streams(0, 0, None, None).available(role) is None


@pytest.mark.parametrize("role", ROLES)
def test_batch_larger_than_the_data_raises_with_both_numbers_and_the_role(role):
    with pytest.raises(ValueError, match=rf"batch of 9 rows.*{role}.*only 8.*smaller batch"):
        Streams(0, 0, 8, 8).rows(role, 9)


def test_drawing_rows_leaves_the_global_random_states_alone():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    draw(0, 0, "inner")
    Streams(0, 0, 5, 5).below(3)
    assert torch.equal(torch.get_rng_state(), torch_state)
    after = np.random.get_state()  # noqa: NPY002
    assert after[2] == numpy_state[2]
    assert (after[1] == numpy_state[1]).all()


def test_one_batch_size_serves_every_role():
    assert BatchSizes.of(4) == BatchSizes(4, 4, 4, 4)
    assert BatchSizes.of(None) == BatchSizes()
    sizes = BatchSizes(inner=2)
    assert BatchSizes.of(sizes) is sizes


def test_batch_sizes_by_role_leave_the_others_at_all_rows():
    assert BatchSizes.of({"inner": 8, "cross": 2}) == BatchSizes(8, None, None, 2)


def test_batch_sizes_have_the_roles_of_the_streams():
    assert set(BatchSizes.__dataclass_fields__) == set(ROLES) - {"curvature"}


@pytest.mark.parametrize("size", [0, -3, 2.5, "4", True])
def test_batch_size_that_is_no_positive_integer_raises_with_role_and_value(size):
    with pytest.raises(ValueError) as error:
        BatchSizes.of({"hessian": size})
    assert "'hessian'" in str(error.value)
    assert repr(size) in str(error.value)


def test_unknown_role_raises_with_those_there_are():
    with pytest.raises(ValueError, match=r"unknown batch roles \['hesian'\].*'hessian'"):
        BatchSizes.of({"hesian": 3})
