"""The closed forms of heads and the task-by-task networks equal automatic differentiation."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from bilevel.few_shot import WholeNetwork, ZeroHead
from bilevel.linear import CG, from_oracle
from torch.autograd.functional import hessian

import bilevel
from bilevel.apps.few_shot.tasks import ENDLESS
from bilevel.hypergradients import Stand
from bilevel.models.heads.networks import NetworkOracle
from bilevel.models.heads.oracle import HeadOracle
from bilevel.oracles import AutogradOracle, SharedBatch, make

from ...truth.dense_truth import relative
from .few_shot_cases import HEADS, direction, network, problem, smooth_network, some_point

# All in one batch; some, in another order; with no end, a head for each of the batch alone.
ROWS = {
    "pool": (5, torch.tensor([3, 0, 4])),
    "whole-pool": (3, None),
    "endless": (ENDLESS, torch.tensor([7, 3, 11])),
}
LEARNERS = {**HEADS, "network": WholeNetwork(seed=4)}
on_learners = pytest.mark.parametrize("learner", LEARNERS)
on_heads = pytest.mark.parametrize("learner", HEADS)


def both(learner, count=5, dtype=torch.float64):
    stated = problem(LEARNERS[learner], count=count, dtype=dtype)
    return make(stated), AutogradOracle(stated), *some_point(stated)


@pytest.mark.parametrize(
    ("rows", "dtype", "tolerance"),
    [*((rows, torch.float64, 1e-13) for rows in ROWS), ("pool", torch.float32, 5e-6)],
)
@on_learners
def test_values_gradients_and_products_equal_autograd(learner, rows, dtype, tolerance):
    count, rows = ROWS[rows]
    fast, truth, x, y = both(learner, count, dtype)
    assert type(fast) is (NetworkOracle if learner == "network" else HeadOracle)
    v = direction(y)
    ours, theirs = fast.linearize(x, y, rows), truth.linearize(x, y, rows)
    outer, outer_truth = fast.outer(x, y, rows).gradient(), truth.outer(x, y, rows).gradient()
    value, gradient = fast.inner(x, y, rows).value_and_gradient()
    pairs = {
        "f": (fast.outer(x, y, rows).value(), truth.outer(x, y, rows).value()),
        "g": (fast.inner(x, y, rows).value(), truth.inner(x, y, rows).value()),
        "g with its gradient": (value, truth.inner(x, y, rows).value()),
        "∇y f": (outer[1], outer_truth[1]),
        "∇y g": (fast.inner(x, y, rows).gradient(), theirs.gradient()),
        "∇y g with g": (gradient, theirs.gradient()),
        "∇y g linearised": (ours.gradient(), theirs.gradient()),
        "∇²y g v": (ours.hvp(v), theirs.hvp(v)),
    }
    if learner == "network":  # whose x is but the start
        assert not fast.pull(x, outer[0], rows).any()
        assert not fast.pull(x, ours.cross(v), rows).any()
        assert not fast.pull(x, ours.gradient_x(), rows).any()
    else:
        of_x = fast.inner(x, y, rows).gradient_x()
        pairs["∇x g"] = (fast.pull(x, of_x, rows), theirs.gradient_x())
        pairs["∇x g linearised"] = (fast.pull(x, ours.gradient_x(), rows), theirs.gradient_x())
        pairs["∇x∇y g v with ∇²y g v"] = (fast.pull(x, ours.both(v)[1], rows), theirs.cross(v))
        pairs["∇x f"] = (fast.pull(x, outer[0], rows), outer_truth[0])
        pairs["∇x∇y g v"] = (fast.pull(x, ours.cross(v), rows), theirs.cross(v))
    errors = {name: relative(mine, true) for name, (mine, true) in pairs.items()}
    assert max(errors.values()) < tolerance, errors


@on_learners
def test_covectors_can_be_added_before_they_are_pulled_back(learner):
    fast, truth, x, y = both(learner)
    rows, v = torch.tensor([2, 4, 1]), direction(y)
    start = fast.start(x, y, rows).pull(v)
    covector = (
        fast.outer(x, y, rows).gradient()[0] - 2 * fast.linearize(x, y, rows).cross(v) + start
    )
    expected = truth.outer(x, y, rows).gradient()[0] - 2 * truth.linearize(x, y, rows).cross(v)
    expected = expected + truth.start(x, y).pull(v)
    assert relative(fast.pull(x, covector, rows), expected) < 1e-12
    assert relative(fast.pull(x, covector, rows), expected) < 1e-12  # a second time


@on_learners
def test_the_start_and_its_derivative_equal_autograd(learner):
    fast, truth, x, y = both(learner)
    assert torch.equal(fast.start(x, y).point(), truth.start(x, y).point())
    r, rows = direction(y), torch.tensor([0, 1, 2])
    assert torch.allclose(
        fast.pull(x, fast.start(x, y, rows).pull(r), rows), truth.start(x, y).pull(r), rtol=1e-12
    )
    assert bool(truth.start(x, y).pull(r).any()) == (learner in ("learned", "network"))


@pytest.mark.parametrize("rows", [[0, 1, 2], [4, 2]])
@on_heads
def test_the_diagonal_is_that_of_the_dense_hessian(learner, rows):
    fast, truth, x, y = both(learner)
    rows = torch.tensor(rows)
    dense = hessian(lambda p: truth.problem.inner_loss(x, p, rows), y)
    assert relative(fast.linearize(x, y, rows).diagonal(), dense.diagonal()) < 1e-12


@on_learners
def test_tasks_outside_the_batch_have_no_derivatives(learner):
    fast, _, x, y = both(learner)
    rows = torch.tensor([3, 1])
    around = fast.linearize(x, y, rows)
    others = torch.tensor([0, 2, 4])
    for vector in (
        around.gradient(), around.hvp(direction(y)), fast.outer(x, y, rows).gradient()[1]
    ):  # fmt: skip
        assert not vector.view(5, -1)[others].any()
        assert vector.view(5, -1)[rows].any(1).all()


def test_two_tasks_that_share_a_head_add_up_as_in_autograd():
    fast, truth, x, y = both("zero", ENDLESS)
    rows, v = torch.tensor([1, 4, 7, 2]), direction(y)  # three of them have head 1
    ours, theirs = fast.linearize(x, y, rows), truth.linearize(x, y, rows)
    assert relative(ours.gradient(), theirs.gradient()) < 1e-12
    assert relative(ours.hvp(v), theirs.hvp(v)) < 1e-12
    assert relative(fast.pull(x, ours.cross(v), rows), theirs.cross(v)) < 1e-12


def head_oracle(graph_bytes, learner="zero", embedding=network):
    stated = problem(HEADS[learner], count=5, embedding=embedding())
    return HeadOracle(stated.model.form, stated.inner_data, graph_bytes=graph_bytes), stated


def graphs_kept(oracle, x, rows):
    return len(oracle.embedded(x, rows)._kept)


@pytest.mark.parametrize("embedding", [network, smooth_network])
def test_the_room_for_graphs_changes_no_bit_of_the_derivative(embedding):
    rows = torch.tensor([3, 0, 4])
    oracle, stated = head_oracle(2**30, embedding=embedding)
    x, y = some_point(stated)
    one = oracle.embedded(x, rows)._kept[0].bytes
    kept, pulled = [], []
    for room in (0, 2 * one + one // 2, 2**30):
        oracle, _ = head_oracle(room, embedding=embedding)
        covector = oracle.linearize(x, y, rows).cross(direction(y))
        kept.append(graphs_kept(oracle, x, rows))
        pulled += [oracle.pull(x, covector, rows), oracle.pull(x, covector, rows)]
    assert kept == [0, 2, 3]
    assert all(torch.equal(other, pulled[0]) for other in pulled)


def test_features_are_those_of_the_x_and_the_tasks_that_are_asked_for():
    oracle, stated = head_oracle(2**30)
    truth = AutogradOracle(stated)
    x, y = some_point(stated)
    moved, rows = x + 0.1, torch.tensor([0, 1, 2])

    def agrees(x, rows):
        ours = oracle.pull(x, oracle.outer(x, y, rows).gradient()[0], rows)
        return relative(ours, truth.outer(x, y, rows).gradient()[0]) < 1e-12

    assert agrees(x, rows)
    assert agrees(moved, rows)
    assert agrees(x, rows)
    assert agrees(x, torch.tensor([0, 1, 3]))
    assert agrees(x, torch.tensor([1, 0, 3]))
    assert agrees(x, None)
    assert agrees(x, rows)
    x.add_(0.05)
    assert agrees(x, rows)
    x[7] += 0.5
    assert agrees(x, rows)


def test_the_same_tasks_at_the_same_x_are_embedded_once():
    oracle, stated = head_oracle(2**30)
    x, _ = some_point(stated)
    first = oracle.embedded(x, torch.tensor([0, 1]))
    assert oracle.embedded(x, torch.tensor([0, 1])) is first
    assert oracle.embedded(x, torch.tensor([0, 2])) is not first


def test_values_make_no_graph_and_leave_the_last_features_where_they_are():
    oracle, stated = head_oracle(2**30)
    x, y = some_point(stated)
    first = oracle.embedded(x, torch.tensor([0, 1]))
    oracle.outer(x, y, torch.tensor([2, 3])).value()
    oracle.inner(x.clone(), y, torch.tensor([0, 1])).value()
    assert oracle.embedded(x, torch.tensor([0, 1])) is first
    assert len(first._kept) == 2


def test_graphs_that_are_not_pulled_back_are_freed_at_once():
    """A saved tensor that holds its own graph would stay for ever: no collector sees it."""
    oracle, stated = head_oracle(2**30, embedding=smooth_network)
    x, y = some_point(stated)
    gc.disable()
    try:
        oracle.inner(x, y, torch.tensor([0, 1])).gradient()
        recordings = oracle.embedded(x, torch.tensor([0, 1]))._kept.values()
        leaves = [weakref.ref(recording._x) for recording in recordings]
        del recordings
        assert len(leaves) == 2
        oracle.inner(x, y, torch.tensor([2, 3])).gradient()
        assert [leaf() for leaf in leaves] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("batch", [1, 2])
def test_batches_within_the_tasks_of_a_step_are_refused(batch):
    algorithm = bilevel.algorithms.StocBiO(inner_steps=2, batch=batch)
    with pytest.raises(ValueError, match="on all tasks of a step, so use batch=None"):
        bilevel.minimize(problem(ZeroHead()), algorithm, steps=1)


def test_preconditioned_cg_leaves_the_heads_of_other_tasks_alone():
    fast, _, x, y = both("zero")
    oracle = SharedBatch(fast, torch.tensor([4, 1]))
    plain, preconditioned = (
        bilevel.AID(CG(60, 1e-13, choice)).estimate(
            oracle, Stand(x, y), bilevel.inner.GradientDescent(3, 0.5), oracle.streams(0)
        )
        for choice in (None, from_oracle)
    )
    assert preconditioned.linear.steps > 3
    assert relative(preconditioned.value, plain.value) < 1e-10


@on_learners
def test_nothing_is_written_to_what_the_oracle_is_given(learner):
    fast, _, x, y = both(learner)
    rows, v = torch.tensor([3, 1, 4]), direction(y)
    before = [t.clone() for t in (x, y, v, rows)]
    around = fast.linearize(x, y, rows)
    fast.pull(x, fast.outer(x, y, rows).gradient()[0] - around.cross(v), rows)
    around.gradient(), around.hvp(v), fast.start(x, y).point(), fast.start(x, y, rows).pull(v)
    assert all(torch.equal(a, b) for a, b in zip((x, y, v, rows), before, strict=True))
    assert not x.requires_grad
