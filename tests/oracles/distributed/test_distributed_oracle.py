"""What the processes' oracles give together is what the oracle of all rows gives.

Here the processes are threads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from bilevel.few_shot import LearnedHead, ZeroHead
from bilevel.peers import Peers
from bilevel.stored import NpyRows
from torch import Tensor

import bilevel
from bilevel.models.softmax.design import design
from bilevel.models.softmax.model import SoftmaxModel
from bilevel.oracles import Oracle, Views, make
from bilevel.problem.parts import Part

from ...models.heads.few_shot_cases import problem as few_shot
from ...truth.dense_truth import relative
from ...truth.quadratics import noisy_sum, quadratic
from ...truth.small_problems import cleaning, softmax
from .rank_cases import sparse, weights_and_penalties
from .threads import together

_FOLDER = tempfile.TemporaryDirectory()  # until the end of the process


def in_files() -> bilevel.Problem:
    plain = weights_and_penalties().model.form
    parts = []
    for name in ("train", "validation"):
        file = Path(_FOLDER.name) / f"{name}.npy"
        if not file.exists():
            np.save(file, getattr(plain, name).numpy())
        parts.append((NpyRows(file), getattr(plain, f"{name}_labels")))
    return bilevel.softmax_problem(
        *parts, weights=bilevel.SigmoidWeights(), penalty=bilevel.PerWeight(), classes=3
    )


PROBLEMS: dict[str, Callable[[], bilevel.Problem]] = {
    "rows": lambda: noisy_sum(rows=13).problem(),
    "no rows": lambda: quadratic(4.0).problem(),
    "autograd, a weight a row": lambda: cleaning(rows=13),
    "closed form, a weight a row": lambda: softmax(
        rows=13, weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1)
    ),
    "closed form, weights and penalties": weights_and_penalties,
    "closed form, given weights": lambda: softmax(
        rows=13, weights=torch.linspace(0, 1, 13).double()
    ),
    "sparse": sparse,
    "in files": in_files,
    # A module cannot be called by several threads at once, so each thread has its own.
    "tasks": lambda: few_shot.__wrapped__(ZeroHead(0.05), batch=3),
    "tasks, a learned start": lambda: few_shot.__wrapped__(LearnedHead(0.01, seed=2), batch=3),
}


def answers(oracle: Oracle, problem: bilevel.Problem, rows: Tensor | None) -> dict[str, Tensor]:
    """Everything that an algorithm may ask."""
    generator = torch.Generator().manual_seed(1)

    def near(point: Tensor) -> Tensor:
        return point + 0.3 * torch.randn(len(point), generator=generator, dtype=torch.float64)

    x, y, v = near(problem.x0), near(problem.y0), near(torch.zeros_like(problem.y0))
    outer_x, outer_y = oracle.outer(x, y, rows).gradient()
    around = oracle.linearize(x, y, rows)
    value, gradient = oracle.inner(x, y, rows).value_and_gradient()
    start = oracle.start(x, y, rows)
    found = {
        "outer value": oracle.outer(x, y, rows).value(),
        "outer gradient by y": outer_y,
        "inner value": oracle.inner(x, y, rows).value(),
        "inner value beside the gradient": value,
        "inner gradient": oracle.inner(x, y, rows).gradient(),
        "inner gradient beside the value": gradient,
        "inner gradient of the linearisation": around.gradient(),
        "hvp": around.hvp(v),
        "hvp beside the cross product": around.both(v)[0],
        "gradient by x": oracle.pull(x, oracle.inner(x, y, rows).gradient_x(), rows),
        "gradient by x of the linearisation": oracle.pull(x, around.gradient_x(), rows),
        "hypergradient": oracle.pull(x, outer_x - around.cross(v), rows),
        "hypergradient beside the hvp": oracle.pull(x, outer_x - around.both(v)[1], rows),
        "start": start.point(),
        "start pulled": oracle.pull(x, outer_x + start.pull(v), rows),
    }
    if isinstance(problem.model, SoftmaxModel):
        found["diagonal"] = around.diagonal()
    return found


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("chosen", [None, [0, 12, 5], [7]], ids=["all", "some", "one"])
def test_the_sum_of_the_parts_is_the_whole(name, size, chosen):
    problem = PROBLEMS[name]()
    if chosen is not None and problem.inner_data is None:
        pytest.skip("no rows to choose from")
    rows = None if chosen is None else torch.tensor(chosen)
    by_task = problem.tasks is not None
    if by_task:
        rows = torch.arange(3) if rows is None else torch.arange(len(rows))
    whole = answers(make(problem), problem, rows)

    def part(peers: Peers) -> dict[str, Tensor]:
        own = PROBLEMS[name]()
        return answers(make(bilevel.shard(own, peers)), own, rows)

    found = together(size, part)
    for each in found:
        for what, value in whole.items():
            torch.testing.assert_close(
                each[what], value, rtol=1e-11, atol=1e-12, msg=lambda m, w=what: f"{w}: {m}"
            )
            assert torch.equal(each[what], found[0][what]), f"{what} differs between processes"


INVERSES = {
    "one penalty": lambda: softmax(
        rows=40, features=6, weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1)
    ),
    "by feature": lambda: softmax(rows=40, features=6, penalty=bilevel.PerFeature()),
    "by weight": weights_and_penalties,
    "one feature, two classes": lambda: softmax(rows=40, features=1, classes=2),
    "sparse": sparse,
    "in files": in_files,
    "tasks": PROBLEMS["tasks"],
}


@pytest.mark.parametrize("name", INVERSES)
@pytest.mark.parametrize("chosen", [None, [1, 0]], ids=["all", "some"])
def test_the_approximate_inverse_is_that_of_all_rows(name, chosen):
    problem = INVERSES[name]()
    rows = None if chosen is None else torch.tensor(chosen)  # of which one process may have none
    rows = torch.arange(3) if name == "tasks" and rows is None else rows
    x, v = problem.x0, torch.linspace(-1, 1, len(problem.y0)).double()

    def product(peers: Peers | None) -> Tensor:
        own = INVERSES[name]()
        stated = own if peers is None else bilevel.shard(own, peers)
        return make(stated).linearize(x, problem.y0, rows).inverse()(v)

    found, alone = together(3, product), product(None)
    for each in found:
        torch.testing.assert_close(each, alone, rtol=1e-11, atol=1e-13)
        assert torch.equal(each, found[0])


def test_parts_make_the_gram_matrix_of_the_same_rows_as_the_whole():
    """Of many rows it is made of every so-manieth."""
    X = torch.randn(13_001, 2, generator=torch.Generator().manual_seed(0)).double()
    whole = design(X).gram()
    parts = [Part(first, end, len(X)) for first, end in ((0, 4334), (4334, 8667), (8667, 13_001))]
    grams = [design(X[p.first : p.end], p).gram() * (len(p) / p.total) for p in parts]
    torch.testing.assert_close(sum(grams), whole, rtol=1e-13, atol=0)
    assert not torch.allclose(whole, X.T @ X / len(X), rtol=1e-6)


def test_without_numbers_the_answer_does_not_depend_on_the_number_of_processes():
    """y has more than 1,000 entries here: H is not built, and the oracle's inverse serves."""
    generator = torch.Generator().manual_seed(0)
    X, labels = torch.randn(150, 120, generator=generator).double(), torch.arange(150) % 10
    X[torch.arange(150), labels] += 2

    def run(peers: Peers | None) -> bilevel.Result:
        problem = bilevel.softmax_problem(
            (X[:100], labels[:100]), (X[100:], labels[100:]), penalty=bilevel.PerFeature()
        )
        problem = problem if peers is None else bilevel.shard(problem, peers)
        return bilevel.minimize(problem, bilevel.algorithms.AIDBiO(), steps=4)

    alone = run(None)
    assert len(alone.state.y) == 1200
    for size in (2, 3):
        for each in together(size, run):
            assert relative(each.x, alone.x) < 1e-9
            assert relative(each.y, alone.y) < 1e-9


def test_a_run_stops_on_all_when_one_is_asked_to_stop():
    problem = noisy_sum(rows=13).problem()
    algorithm = bilevel.algorithms.AIDBiO(inner_steps=3, inner_lr=0.1, cg_steps=3, outer_lr=0.1)

    def run(peers: Peers) -> tuple[str, int]:
        def stop(progress: bilevel.Progress) -> bool:
            return peers.rank == 1 and progress.record.step == 4

        result = bilevel.minimize(bilevel.shard(problem, peers), algorithm, callbacks=[stop])
        return str(result.status), result.state.step

    assert together(3, run) == [("stopped", 4)] * 3


def test_all_go_by_the_slowest_clock():
    problem = noisy_sum(rows=13).problem()
    algorithm = bilevel.algorithms.AIDBiO(inner_steps=3, inner_lr=0.1, cg_steps=3, outer_lr=0.1)

    def run(peers: Peers) -> list[float]:
        ticks = iter(range(0, 10**6, 1 + peers.rank))
        result = bilevel.minimize(
            bilevel.shard(problem, peers), algorithm, steps=3, clock=lambda: next(ticks)
        )
        return [record.seconds for record in result.history]

    assert together(3, run) == [[3.0, 6.0, 9.0]] * 3


def test_the_tasks_of_a_step_are_split_and_all_are_done():
    problem = PROBLEMS["tasks"]()

    def rows(peers: Peers) -> Tensor:
        views = Views(bilevel.shard(problem, peers))
        assert views.at(1).whole.inner_rows == 3
        return views.oracle.view.inner(torch.arange(3, 6)).rows

    assert sorted(torch.cat(together(2, rows)).tolist()) == [3, 4, 5]
