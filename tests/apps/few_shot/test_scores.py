"""Accuracy: adapt to a task as the algorithm does, and count the query images that are right."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from bilevel.few_shot import (
    FourBlocks,
    LearnedHead,
    RandomHead,
    Tasks,
    WholeNetwork,
    ZeroHead,
    accuracy,
    few_shot_problem,
)

from bilevel.algorithms import MAML, AIDBiO, ITDBiO
from bilevel.apps.few_shot import scores
from bilevel.datasets import Images

from ...models.heads.few_shot_cases import (
    SUPPORT,
    Counted,
    adapted_head,
    adapted_network,
    features,
    network,
    problem,
    some_point,
)

SETTINGS = {"inner_lr": 0.5}
PAIRS = {
    "itd-bio": (ZeroHead(0.01), ITDBiO),
    "aid-bio": (ZeroHead(0.01), AIDBiO),
    "random head": (RandomHead(seed=1), ITDBiO),
    "anil": (LearnedHead(0.1, seed=2), MAML),
    "maml": (WholeNetwork(seed=3), MAML),
}
QUERY_LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def by_hand(stated, learner, x, tasks, steps, lr):
    """The share of right answers in each task."""
    own, shares = stated.x_structure.unflatten(x), []
    for images in stated.inner_data.rows(torch.arange(tasks)):
        if isinstance(learner, WholeNetwork):
            y = adapted_network(stated, x, images[:SUPPORT], steps, lr)
            own = stated.x_structure.unflatten(y)
            z, head = features(own["embedding"], images[SUPPORT:]), own["head"]
        else:
            everything = features(own["embedding"], images)
            start = own.get("head", stated.y_structure.unflatten(stated.y0)[0])
            z = everything[SUPPORT:]
            head = adapted_head(everything[:SUPPORT], start, steps, lr, learner.ridge)
        answers = (z @ head[:-1] + head[-1]).argmax(1)
        shares.append(float((answers == QUERY_LABELS).double().mean()))
    return shares


@pytest.mark.parametrize("pair", PAIRS)
def test_accuracy_is_what_a_hand_count_gives(pair):
    learner, method = PAIRS[pair]
    stated, algorithm = problem(learner), method(inner_steps=4, **SETTINGS)
    x, _ = some_point(stated)
    shares = by_hand(stated, learner, x, 10, 4, 0.5)
    found = accuracy(stated, algorithm, x, 10)
    assert len(set(shares)) > 1
    assert found.tasks == 10
    assert found.mean == pytest.approx(sum(shares) / 10, abs=1e-12)
    variance = sum((share - found.mean) ** 2 for share in shares) / 9
    assert found.interval == pytest.approx(1.96 * math.sqrt(variance / 10), abs=1e-12)


@pytest.mark.parametrize("pair", PAIRS)
def test_accuracy_is_whole_where_classes_are_easy(pair):
    learner, method = PAIRS[pair]
    rng = np.random.default_rng(0)
    patterns = rng.integers(20, 235, size=(5, 1, 16, 16, 1))
    pixels = patterns + rng.integers(-2, 3, size=(5, 6, 16, 16, 1))
    images = Images(
        pixels.reshape(-1, 16, 16, 1).astype(np.uint8), np.repeat(np.arange(5), 6), tuple("abcde")
    )
    tasks = Tasks(images, ways=3, shots=2, queries=4)
    stated = few_shot_problem(tasks, FourBlocks(1, 16, 8), learner, batch=2)
    found = accuracy(stated, method(inner_steps=20, **SETTINGS), stated.x0, 9)
    assert (found.mean, found.interval, found.tasks) == (1.0, 0.0, 9)
    assert str(found) == "100.00 ± 0.00 % over 9 tasks"


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("pool", [{}, {"count": 12, "batch": 5}], ids=["endless", "pool"])
def test_how_many_tasks_go_together_does_not_matter(monkeypatch, pair, pool):
    learner, method = PAIRS[pair]
    stated, algorithm = problem(learner, **pool), method(inner_steps=3, **SETTINGS)
    x, _ = some_point(stated)
    found, told = set(), []
    for together in (1, 3, 8):
        monkeypatch.setattr(scores, "_TOGETHER", together)
        told.clear()
        found.add(accuracy(stated, algorithm, x, 10, advance=told.append))
        assert told[-1] == 10
        assert told == sorted(set(told))
    assert len(found) == 1


def test_one_task_has_no_interval():
    found = accuracy(problem(), ITDBiO(), problem().x0, 1)
    assert math.isnan(found.interval)
    assert found.tasks == 1


def test_inner_steps_that_grow_are_those_of_the_step_that_x_comes_from():
    stated = problem(ZeroHead(0.01))
    x, _ = some_point(stated)
    growing = ITDBiO(inner_steps=lambda k: (1, 25)[k], **SETTINGS)
    for step, constant in enumerate((1, 25)):
        expected = accuracy(stated, ITDBiO(inner_steps=constant, **SETTINGS), x, 12)
        assert accuracy(stated, growing, x, 12, step=step) == expected
    assert accuracy(stated, growing, x, 12, step=0) != accuracy(stated, growing, x, 12, step=1)


@pytest.mark.parametrize("pair", ["itd-bio", "aid-bio", "random head", "anil"])
def test_heads_are_adapted_without_a_graph_and_each_task_is_embedded_once(pair):
    learner, method = PAIRS[pair]
    embedding = Counted(network())
    stated = problem(learner, embedding=embedding)
    embedding.reset()
    accuracy(stated, method(inner_steps=6, **SETTINGS), stated.x0, 10)
    assert (embedding.forwards, embedding.recorded, embedding.backwards) == (10, 0, 0)


def test_x_and_the_problem_are_left_as_they_were():
    stated = problem(LearnedHead())
    x, _ = some_point(stated)
    before = x.clone(), stated.x0.clone(), stated.y0.clone()
    accuracy(stated, MAML(inner_steps=2), x, 3)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, stated.x0, stated.y0), strict=True))
