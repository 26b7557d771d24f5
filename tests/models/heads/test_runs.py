"""Runs on few-shot problems: which tasks a step sees, where heads start, and resuming."""

from __future__ import annotations

import io

import pytest
import torch
from bilevel.few_shot import LearnedHead, RandomHead, WholeNetwork, ZeroHead

import bilevel
from bilevel.algorithms import MAML, AIDBiO, ITDBiO

from ...truth.dense_truth import relative
from .few_shot_cases import SUPPORT, adapted_head, features, problem

SETTINGS = {"inner_steps": 3, "inner_lr": 0.4, "outer": bilevel.updates.Adam(0.02)}
RUNS = {
    "itd-bio": (ZeroHead(0.05), ITDBiO(**SETTINGS)),
    "itd-bio cold": (RandomHead(), ITDBiO(warm_start=False, **SETTINGS)),
    "first-order": (ZeroHead(0.05), ITDBiO(truncate=0, **SETTINGS)),
    "aid-bio": (ZeroHead(0.05), AIDBiO(cg_steps=4, **SETTINGS)),
    "anil": (LearnedHead(), MAML(**SETTINGS)),
    "maml": (WholeNetwork(), MAML(**{**SETTINGS, "inner_steps": 1})),
}


def states(stated, algorithm, steps):
    seen = []
    bilevel.minimize(stated, algorithm, steps=steps, callbacks=[lambda p: seen.append(p.state)])
    return seen


def head_by_hand(stated, x, head, task):
    own = stated.x_structure.unflatten(x)
    z = features(own["embedding"], stated.inner_data.rows(torch.tensor([task]))[0])
    return adapted_head(z[:SUPPORT], head, 3, 0.4, ridge=0.05).detach()


def test_with_a_pool_heads_go_on_from_where_they_were_when_their_task_comes_back():
    stated = problem(ZeroHead(0.05), count=5, batch=2)
    x, heads = stated.x0, torch.zeros(5, 5, 3).double()
    batches = [(0, 1), (2, 3), (4, 0), (1, 2), (3, 4), (0, 1)]
    for state, batch in zip(states(stated, ITDBiO(**SETTINGS), 6), batches, strict=True):
        after = stated.y_structure.unflatten(state.y)
        for task in range(5):
            if task in batch:
                assert relative(after[task], head_by_hand(stated, x, heads[task], task)) < 1e-12
            else:
                assert torch.equal(after[task], heads[task])
        x, heads = state.x, after


def test_with_a_pool_the_linear_solutions_of_other_tasks_are_kept_too():
    stated = problem(ZeroHead(0.05), count=5, batch=2)
    first, second = states(stated, AIDBiO(cg_steps=30, **SETTINGS), 2)
    v = [state.points["v"].view(5, -1) for state in (first, second)]
    assert v[0].any(1).tolist() == [True, True, False, False, False]
    assert torch.equal(v[1][:2], v[0][:2])
    assert v[1].any(1).tolist() == [True, True, True, True, False]


def test_without_a_warm_start_every_head_starts_from_zero():
    stated = problem(ZeroHead(0.05), batch=2)
    x = stated.x0
    run = states(stated, ITDBiO(warm_start=False, **SETTINGS), 3)
    for k, state in enumerate(run):
        after = stated.y_structure.unflatten(state.y)
        zero = torch.zeros(5, 3).double()
        for task in (2 * k, 2 * k + 1):
            assert relative(after[task % 2], head_by_hand(stated, x, zero, task)) < 1e-12
        x = state.x


def test_heads_start_where_the_learner_says():
    zero, random, learned = (
        problem(learner, batch=2) for learner in (ZeroHead(), RandomHead(seed=4), LearnedHead())
    )
    assert not zero.y0.any()
    first, second = random.y_structure.unflatten(random.y0)
    assert torch.equal(first, second)
    assert first.abs().max() <= 0.5  # 4 features: uniform in ±1/√4, as torch's linear layer
    assert len(first.unique()) == first.numel()
    assert not torch.equal(random.y0, problem(RandomHead(seed=5), batch=2).y0)
    head = learned.x_structure.unflatten(learned.x0)["head"]
    assert torch.equal(learned.y_structure.unflatten(learned.y0), head.expand(2, -1, -1))


def test_anil_learns_the_head_and_itd_bio_with_the_same_problem_leaves_it():
    stated = problem(LearnedHead(), batch=2)
    for algorithm, moves in ((MAML(**SETTINGS), True), (ITDBiO(**SETTINGS), False)):
        found = bilevel.minimize(stated, algorithm, steps=1)
        head = stated.x_structure.unflatten(stated.x0)["head"]
        assert torch.equal(found.x["head"], head) != moves
        assert not torch.equal(found.state.x, stated.x0)


@pytest.mark.parametrize(
    ("name", "pool"),
    [*((name, {"count": 5, "chunk": 2}) for name in RUNS), ("itd-bio cold", {}), ("anil", {})],
)
def test_a_run_cut_at_any_step_and_resumed_equals_the_unbroken_run_to_the_bit(name, pool):
    learner, algorithm = RUNS[name]
    steps = 4
    files = [io.BytesIO() for _ in range(steps)]
    unbroken = bilevel.minimize(
        problem(learner, **pool),
        algorithm,
        steps=steps,
        callbacks=[lambda p: torch.save(p.state, files[p.record.step - 1])],
    )
    for cut, file in enumerate(files[:-1], start=1):
        file.seek(0)
        state = torch.load(file, weights_only=True)
        resumed = bilevel.minimize(problem(learner, **pool), algorithm, steps=steps, state=state)
        for name, point in unbroken.state.points.items():
            assert torch.equal(resumed.state.points[name], point)
        norms = [record.hypergradient_norm for record in unbroken.history[cut:]]
        assert [record.hypergradient_norm for record in resumed.history] == norms
        values = [record.outer_value for record in unbroken.history[cut:]]
        assert [record.outer_value for record in resumed.history] == values


@pytest.mark.parametrize("name", RUNS)
def test_the_outer_value_is_that_of_the_tasks_that_the_step_saw(name):
    learner, algorithm = RUNS[name]
    stated = problem(learner, batch=2)
    result = bilevel.minimize(stated, algorithm, steps=3)
    value = stated.outer_loss(result.state.x, result.state.y, torch.tensor([4, 5]))
    assert result.history[-1].outer_value == pytest.approx(float(value), rel=1e-12)
