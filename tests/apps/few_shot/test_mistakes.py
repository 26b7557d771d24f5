"""Wrong arguments of few-shot learning raise, with the value that is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
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
from torch import Tensor, nn

import bilevel
from bilevel.algorithms import ITDBiO
from bilevel.datasets import ImageClasses, Images

from ...models.heads.few_shot_cases import network, pictures, problem
from ...truth.raised_errors import assert_raises, claims

PICTURES = pictures()
UNEQUAL = Images(PICTURES.images[:20], np.array([0] * 8 + [1] * 8 + [2] * 4), ("a", "b", "few"))


class Pair(nn.Linear):
    def forward(self, images: Tensor) -> Any:
        return super().forward(images.flatten(1)), images


def tasks(**changes: Any) -> Tasks:
    return Tasks(PICTURES, **{"ways": 3, "shots": 2, "queries": 2, **changes})


def stated(embedding: Any = None, learner: Any = None, **changes: Any) -> bilevel.Problem:
    return few_shot_problem(tasks(), embedding or network(), learner, **changes)


@claims(
    ("no way", lambda: tasks(ways=0), ValueError, "ways must be … at least 1, got 0"),
    ("half a shot", lambda: tasks(shots=0.5), ValueError, "shots must be … integer … got 0.5"),
    ("no query", lambda: tasks(queries=0), ValueError, "queries must be … at least 1, got 0"),
    ("no task", lambda: tasks(count=0), ValueError, "count must be … at least 1, got 0"),
    ("a negative seed", lambda: tasks(seed=-1), ValueError, "seed must be … at least 0, got -1"),
    (
        "more ways than classes",
        lambda: tasks(ways=7),
        ValueError,
        "ways = 7, but there are only 6 classes",
    ),
    (
        "more images than a class has",
        lambda: tasks(shots=5, queries=4),
        ValueError,
        "shots = 5 and queries = 4 need 9 images a class, but class 'class 0' has only 8",
    ),
    (
        "one class that is too small",
        lambda: Tasks(UNEQUAL, ways=2, shots=3, queries=2),
        ValueError,
        "need 5 images a class, but class 'few' has only 4",
    ),
    (
        "all three splits",
        lambda: Tasks(ImageClasses("x", PICTURES, PICTURES, PICTURES)),
        TypeError,
        r"images must be an object such as load_images\('fc100'\).train, got ImageClasses",
    ),
    (
        "all tasks of no end",
        lambda: tasks().rows(None),
        ValueError,
        "tasks have no end: ask for some of them, or give their count",
    ),
)
def test_wrong_tasks_raise(provoke: Callable[[], Any], error: type[Exception], text: str) -> None:
    assert_raises(provoke, error, text)


@claims(
    ("size 15", lambda: FourBlocks(1, 15), ValueError, "size must be at least 16 … got 15"),
    ("size 8", lambda: FourBlocks(1, 8, 4), ValueError, "size must be at least 16 … got 8"),
    ("no size", lambda: FourBlocks(1, 0), ValueError, "size must be an integer … got 0"),
    ("no channel", lambda: FourBlocks(0), ValueError, "channels must be … got 0"),
    ("no filter", lambda: FourBlocks(filters=0), ValueError, "filters must be … got 0"),
    ("a negative seed", lambda: FourBlocks(seed=-1), ValueError, "seed must be … got -1"),
)
def test_a_wrong_network_raises(
    provoke: Callable[[], Any], error: type[Exception], text: str
) -> None:
    assert_raises(provoke, error, text)


@claims(
    ("negative ridge", lambda: ZeroHead(-0.1), ValueError, "ridge must be … at least 0, got -0.1"),
    ("ridge NaN", lambda: RandomHead(float("nan")), ValueError, "ridge must be … got nan"),
    ("ridge by name", lambda: LearnedHead("0.1"), ValueError, "ridge must be … got '0.1'"),
    ("seed of a head", lambda: RandomHead(seed=-1), ValueError, "seed must be … got -1"),
    ("learned seed", lambda: LearnedHead(seed=0.5), ValueError, "seed must be … got 0.5"),
    ("seed of a network", lambda: WholeNetwork(-3), ValueError, "seed must be … got -3"),
)
def test_a_wrong_learner_raises(
    provoke: Callable[[], Any], error: type[Exception], text: str
) -> None:
    assert_raises(provoke, error, text)


@claims(
    (
        "images in place of tasks",
        lambda: few_shot_problem(PICTURES, network()),
        TypeError,
        r"tasks must be an object such as bilevel.few_shot.Tasks\(images\), got Images",
    ),
    (
        "a class in place of a module",
        lambda: stated(FourBlocks),
        TypeError,
        r"embedding must be an object such as bilevel.few_shot.FourBlocks\(\), got <class",
    ),
    (
        "a class in place of a learner",
        lambda: stated(learner=ZeroHead),
        TypeError,
        r"learner must be an object such as bilevel.few_shot.ZeroHead\(ridge=0.01\), got <class",
    ),
    ("a learner's name", lambda: stated(learner="anil"), TypeError, "learner must … got 'anil'"),
    ("no batch", lambda: stated(batch=0), ValueError, "batch must be an integer … got 0"),
    (
        "a batch larger than the pool",
        lambda: few_shot_problem(tasks(count=7), network(), batch=8),
        ValueError,
        "batch = 8 tasks a step, but there are only 7",
    ),
    (
        "module without parameters",
        lambda: stated(nn.Flatten()),
        ValueError,
        r"embedding Flatten\(.* has no parameters that require a gradient: nothing to learn",
    ),
    (
        "frozen module",
        lambda: stated(network().requires_grad_(False)),
        ValueError,
        "has no parameters that require a gradient",
    ),
    (
        "maps in place of features",
        lambda: stated(nn.Conv2d(1, 4, 3)),
        ValueError,
        r"must give \(n, features\) … got \(2, 4, 14, 14\) for 2: end it with nn.Flatten\(\)",
    ),
    (
        "one row for all images",
        lambda: stated(nn.Sequential(nn.Flatten(0), nn.Linear(512, 3), nn.Unflatten(0, (1, 3)))),
        ValueError,
        r"got \(1, 3\) for 2",
    ),
    (
        "two outputs",
        lambda: stated(Pair(256, 3)),
        ValueError,
        r"must give \(n, features\) … got tuple for 2",
    ),
    (
        "module for other images",
        lambda: stated(FourBlocks(channels=3, size=16)),
        ValueError,
        r"embedding failed on images of shape \(2, 1, 16, 16\): .*3 channels",
    ),
    (
        "parameters that are not finite",
        lambda: stated(nn.Sequential(nn.Flatten(), _nan(nn.Linear(256, 2)))),
        ValueError,
        r"\['1.weight'\] holds 1 values that are NaN",
    ),
)
def test_a_wrong_few_shot_problem_raises(
    provoke: Callable[[], Any], error: type[Exception], text: str
) -> None:
    assert_raises(provoke, error, text)


@claims(
    (
        "accuracy of no task",
        lambda: accuracy(problem(), ITDBiO(), problem().x0, 0),
        ValueError,
        "tasks must be an integer of at least 1, got 0",
    ),
    (
        "accuracy of another problem",
        lambda: accuracy(_other(), ITDBiO(), torch.ones(1), 5),
        ValueError,
        r"accuracy needs a problem made by few_shot_problem, got Problem\(x: 1 number",
    ),
)
def test_a_wrong_accuracy_raises(
    provoke: Callable[[], Any], error: type[Exception], text: str
) -> None:
    assert_raises(provoke, error, text)


def _nan(layer: nn.Linear) -> nn.Linear:
    with torch.no_grad():
        layer.weight[0, 0] = float("nan")
    return layer


def _other() -> bilevel.Problem:
    return bilevel.Problem(
        outer=lambda x, y: (y**2).sum(),
        inner=lambda x, y: ((y - x) ** 2).sum(),
        x0=torch.ones(1),
        y0=torch.ones(1),
    )
