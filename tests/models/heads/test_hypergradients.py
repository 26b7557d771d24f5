"""Few-shot hypergradients: autograd through the steps, dense Hessians, and what they cost."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from bilevel.few_shot import LearnedHead, RandomHead, WholeNetwork, ZeroHead
from bilevel.inner import GradientDescent, NewtonCG
from bilevel.linear import CG

import bilevel
from bilevel.algorithms import MAML, AIDBiO, ITDBiO
from bilevel.hypergradients import Stand
from bilevel.models.heads.oracle import HeadOracle
from bilevel.oracles import SharedBatch, View, Views, make

from ...truth import dense_truth
from ...truth.dense_truth import relative
from ...truth.watched import Watched
from .few_shot_cases import (
    HEADS,
    Counted,
    direction,
    network,
    problem,
    smooth_network,
    some_point,
    unrolled_heads,
    unrolled_networks,
)

LR = 0.4


class Found(NamedTuple):
    y: torch.Tensor
    hypergradient: torch.Tensor


def states(stated, algorithm, steps=2):
    """(x, rows, what came of it) of each outer step."""
    seen, algorithm = [], Watched(algorithm)
    bilevel.minimize(stated, algorithm, steps=steps, callbacks=[lambda p: seen.append(p.state)])
    before = [stated.x0, *(state.x for state in seen[:-1])]
    batch = stated.tasks.batch
    rows = [list(range(batch * k, batch * k + batch)) for k in range(steps)]
    found = [Found(state.y, h) for state, h in zip(seen, algorithm.directions, strict=True)]
    return list(zip(before, rows, found, strict=True))


@pytest.mark.parametrize("D", [1, 4])
def test_maml_equals_autograd_through_its_steps(D):
    stated = problem(WholeNetwork(seed=1), batch=2)
    algorithm = MAML(inner_steps=D, inner_lr=LR, outer_lr=0.1)
    for x, rows, state in states(stated, algorithm):
        truth = unrolled_networks(stated, x, rows, D, LR)
        assert relative(state.hypergradient, truth) < 1e-11


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("D", [1, 5])
def test_anil_equals_autograd_through_its_steps(D, ridge):
    stated = problem(LearnedHead(ridge, seed=1))
    algorithm = MAML(inner_steps=D, inner_lr=LR, outer_lr=0.1)
    for x, rows, state in states(stated, algorithm):
        truth = unrolled_heads(stated, x, None, rows, D, LR, ridge)
        assert relative(state.hypergradient, truth) < 1e-11


@pytest.mark.parametrize("truncate", [None, 0, 1, 3, 5, 9])
@pytest.mark.parametrize("learner", [ZeroHead(0.05), RandomHead(seed=1)], ids=str)
def test_itd_bio_equals_autograd_through_the_last_steps(learner, truncate):
    stated = problem(learner)
    algorithm = ITDBiO(
        inner_steps=5, inner_lr=LR, outer_lr=0.1, truncate=truncate, warm_start=False
    )
    heads = stated.y_structure.unflatten(stated.y0)
    for x, rows, state in states(stated, algorithm):
        truth = unrolled_heads(stated, x, heads, rows, 5, LR, learner.ridge, truncate)
        assert relative(state.hypergradient, truth) < 1e-11


def test_first_order_itd_bio_is_the_outer_gradient_at_the_last_iterate():
    stated = problem(ZeroHead(0.05))
    algorithm = ITDBiO(inner_steps=5, inner_lr=LR, truncate=0)
    ((x, rows, state),) = states(stated, algorithm, steps=1)
    x = x.clone().requires_grad_()
    stated.outer_loss(x, state.y, torch.tensor(rows)).backward()
    assert relative(state.hypergradient, x.grad) < 1e-12
    assert algorithm.price(0).known == {"gc_f": 2, "gc_g": 5, "jv": 0, "hv": 0}


@pytest.mark.parametrize("learner", [ZeroHead(0.05), RandomHead(0.05)], ids=str)
def test_aid_equals_the_dense_hessian_truth_at_converged_heads(learner):
    stated = problem(learner, count=2, batch=2)
    x, _ = some_point(stated)
    estimate = bilevel.hypergradient(
        stated,
        stated.x_structure.unflatten(x),
        stated.y_structure.unflatten(stated.y0),
        method=bilevel.AID(CG(200, 1e-13)),
        inner=NewtonCG(1e-12),
    )
    value = stated.x_structure.flatten(estimate.value)
    assert relative(value, dense_truth.hypergradient(stated, x)) < 1e-9


def test_aid_equals_the_dense_truth_at_heads_that_are_not_converged():
    stated = problem(ZeroHead(0.05), count=2, batch=2)
    algorithm = AIDBiO(inner_steps=3, inner_lr=LR, cg_steps=200, cg_tol=1e-13)
    for x, _, state in states(stated, algorithm):
        assert relative(state.hypergradient, dense_truth.hypergradient(stated, x, state.y)) < 1e-10


def test_aid_is_the_derivative_of_the_outer_loss_at_the_adapted_heads():
    """Central differences of Φ along random directions; without kinks, that they would cross."""
    stated, width = problem(ZeroHead(0.05), count=2, batch=2, embedding=smooth_network()), 1e-5
    x, _ = some_point(stated)

    def phi(x):
        return stated.outer_loss(x, dense_truth.inner_solution(stated, x))

    oracle = make(stated)
    estimate = bilevel.AID(CG(200, 1e-13)).estimate(
        oracle, Stand(x, stated.y0), NewtonCG(1e-12), oracle.streams(0)
    )
    for seed in range(3):
        d = torch.nn.functional.normalize(direction(x, seed), dim=0)
        slope = (phi(x + width * d) - phi(x - width * d)) / (2 * width)
        assert abs(slope - d @ estimate.value) < 1e-8 * estimate.value.norm()


def test_aid_and_itd_agree_after_many_steps():
    stated = problem(ZeroHead(0.2))
    x, y = some_point(stated)
    oracle = Views(stated).at(0).whole
    inner = GradientDescent(300, 0.5)
    aid, itd = (
        method.estimate(oracle, Stand(x, y), inner, oracle.streams(0)).value
        for method in (bilevel.AID(CG(200, 1e-13)), bilevel.ITD())
    )
    assert relative(itd, aid) < 1e-10


@pytest.mark.parametrize("D", [1, 40])
@pytest.mark.parametrize("learner", ["zero", "learned"])
@pytest.mark.parametrize(
    "made",
    [
        lambda D: AIDBiO(inner_steps=D, cg_steps=10),
        lambda D: ITDBiO(inner_steps=D),
        lambda D: ITDBiO(inner_steps=D, truncate=0),
        lambda D: MAML(inner_steps=D),
        lambda D: bilevel.algorithms.Reverse(inner_steps=D, checkpoint=3),
    ],
    ids=["aid-bio", "itd-bio", "first-order", "maml", "checkpointed"],
)
def test_a_step_embeds_each_task_once_and_goes_back_once_whatever_d_is(made, learner, D):
    embedding = Counted(network())
    stated = problem(HEADS[learner], embedding=embedding)
    views, algorithm = Views(stated), made(D)
    state = algorithm.init(views.at(0).whole, stated.x0, stated.y0)
    for k in range(2):
        embedding.reset()
        state, _ = algorithm.step(views.at(k), state)
        assert (embedding.forwards, embedding.backwards) == (3, 3)


def test_a_graph_that_was_not_kept_costs_one_more_pass_forward():
    embedding = Counted(network())
    stated = problem(ZeroHead(0.05), embedding=embedding)
    algorithm = ITDBiO(inner_steps=7)
    for room, forwards in ((0, 6), (2**30, 3)):
        everyone = HeadOracle(stated.model.form, stated.inner_data, graph_bytes=room)
        oracle = SharedBatch(everyone, torch.arange(3))
        embedding.reset()
        algorithm.step(View.of(oracle), algorithm.init(oracle, stated.x0, stated.y0))
        assert (embedding.forwards, embedding.recorded, embedding.backwards) == (forwards, 3, 3)


def test_counts_count_tasks_as_samples():
    stated = problem(ZeroHead(0.05))
    counts = bilevel.minimize(stated, ITDBiO(inner_steps=4, inner_lr=0.1), steps=2).counts
    assert (counts.gc_f, counts.gc_g, counts.jv, counts.hv) == (4, 8, 8, 6)
    samples = [counts[f"{kind}_samples"] for kind in ("gc_f", "gc_g", "jv", "hv")]
    assert samples == [12, 24, 24, 18]


def test_check_hypergradient_agrees_with_aid_on_the_first_tasks():
    stated = problem(ZeroHead(0.05))
    method = bilevel.AID(CG(200, 1e-12))
    report = bilevel.check_hypergradient(stated, stated.x_structure.unflatten(stated.x0), method)
    assert report.against == "dense Hessian"
    assert report.relative_error < 1e-10
