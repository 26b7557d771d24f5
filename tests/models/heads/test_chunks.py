"""A batch of tasks worked on in chunks gives what the whole batch gives."""

from __future__ import annotations

import pytest
import torch
from bilevel.few_shot import LearnedHead, RandomHead, WholeNetwork, ZeroHead
from bilevel.inner import GradientDescent
from bilevel.linear import CG

import bilevel
from bilevel.algorithms import MAML, AIDBiO, ITDBiO
from bilevel.apps.few_shot.tasks import ENDLESS
from bilevel.hypergradients import Stand
from bilevel.hypergradients.parts import estimate_in_parts
from bilevel.oracles import SharedBatch, Views

from ...truth.dense_truth import relative
from ...truth.raised_errors import assert_raises, claims
from ...truth.watched import Watched
from .few_shot_cases import Counted, network, problem, some_point

SETTINGS = {"inner_steps": 3, "inner_lr": 0.4, "outer_lr": 0.1}
RUNS = {
    "itd-bio": (ZeroHead(0.05), ITDBiO(**SETTINGS)),
    "itd-bio cold": (RandomHead(), ITDBiO(warm_start=False, **SETTINGS)),
    "first-order": (ZeroHead(0.05), ITDBiO(truncate=0, **SETTINGS)),
    # CG mixes tasks: only where it converges are chunks the same.
    "aid-bio": (ZeroHead(0.1), AIDBiO(cg_steps=200, cg_tol=1e-13, **SETTINGS)),
    "anil": (LearnedHead(), MAML(**SETTINGS)),
    "maml": (WholeNetwork(), MAML(**{**SETTINGS, "inner_steps": 1})),
}
BATCH = 5


@pytest.mark.parametrize(
    ("name", "count"), [*((name, 7) for name in RUNS), ("itd-bio cold", ENDLESS)]
)
def test_chunks_take_the_steps_of_the_whole_batch(name, count):
    learner, algorithm = RUNS[name]
    watched = Watched(algorithm), Watched(algorithm)
    whole, parts = (
        bilevel.minimize(problem(learner, count=count, batch=BATCH, chunk=size), each, steps=3)
        for size, each in zip((None, 2), watched, strict=True)
    )
    for field in ("x", "y"):
        error = relative(getattr(parts.state, field), getattr(whole.state, field))
        assert error < 1e-9, field
    for theirs, ours in zip(*(each.directions for each in watched), strict=True):
        assert relative(ours, theirs) < 1e-9
    values = [[record.outer_value for record in run.history] for run in (parts, whole)]
    assert values[0] == pytest.approx(values[1], rel=1e-9)


def test_the_parts_of_a_step_are_its_tasks_in_order():
    for chunk, sizes in ((2, [2, 2, 1]), (1, [1] * 5), (5, [5]), (8, [5]), (None, [5])):
        parts = Views(problem(ZeroHead(), count=7, batch=BATCH, chunk=chunk)).at(1).parts
        assert [part.inner_rows for part in parts] == sizes
        assert torch.cat([part.oracle.rows(None) for part in parts]).tolist() == [5, 6, 0, 1, 2]


def test_the_linear_solution_is_that_of_the_whole_batch_and_a_start_for_the_next():
    stated = problem(ZeroHead(0.1), count=7, batch=BATCH, chunk=2)
    views, (x, y) = Views(stated), some_point(stated)
    inner, method = GradientDescent(2, 0.4), bilevel.AID(CG(200, 1e-13))
    whole = SharedBatch(views.oracle, torch.arange(BATCH))
    truth = method.estimate(whole, Stand(x, y), inner, whole.streams(0))
    parts = views.at(0).parts
    found = estimate_in_parts(method, parts, Stand(x, y), inner, 0)
    assert relative(found.linear.v, truth.linear.v) < 1e-9
    stand = Stand(x, y, truth.linear.v)
    again = estimate_in_parts(bilevel.AID(CG(200, 1e-8)), parts, stand, inner, 0)
    assert again.linear.steps == 0
    assert relative(again.linear.v, truth.linear.v) < 1e-12
    assert relative(again.value, truth.value) < 1e-9


@pytest.mark.parametrize("chunk", [1, 2, 5])
@pytest.mark.parametrize("name", ["itd-bio", "aid-bio", "anil"])
def test_each_task_is_embedded_once_and_differentiated_once(name, chunk):
    learner, algorithm = RUNS[name]
    embedding = Counted(network())
    stated = problem(learner, batch=BATCH, chunk=chunk, embedding=embedding)
    view = Views(stated).at(0)
    embedding.reset()
    algorithm.step(view, algorithm.init(view.whole, stated.x0, stated.y0))
    assert (embedding.forwards, embedding.backwards) == (BATCH, BATCH)


def test_calls_are_counted_by_chunk_and_samples_by_task():
    counts = {
        chunk: bilevel.minimize(
            problem(ZeroHead(), batch=BATCH, chunk=chunk), ITDBiO(inner_steps=4), steps=1
        ).counts
        for chunk in (None, 2)
    }
    assert [counts[None].gc_g, counts[2].gc_g] == [4, 12]
    assert [c.gc_g_samples for c in counts.values()] == [4 * BATCH] * 2
    assert [c.gc_f_samples for c in counts.values()] == [2 * BATCH] * 2
    assert [c.jv_samples for c in counts.values()] == [4 * BATCH] * 2


def test_any_problem_of_tasks_can_be_worked_on_in_chunks():
    targets = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double()

    def stated(chunk):
        return bilevel.Problem(
            outer=lambda x, y, b: ((y[b.index] - b.data.cos()) ** 2).sum(1).mean(),
            inner=lambda x, y, b: ((y[b.index] - x * b.data) ** 2).sum() + y[b.index].exp().sum(),
            x0=torch.ones(2).double(),
            y0=torch.zeros(6, 2).double(),
            outer_data=targets,
            inner_data=targets,
            tasks=bilevel.Tasks(5, chunk),
        )

    settings = {**SETTINGS, "inner_lr": 0.1}
    for algorithm in (ITDBiO(**settings), AIDBiO(cg_steps=40, cg_tol=1e-13, **settings)):
        whole, parts = (bilevel.minimize(stated(size), algorithm, steps=6) for size in (None, 2))
        assert relative(parts.x, whole.x) < 1e-10
        assert relative(parts.y, whole.y) < 1e-10


@claims(
    ("none", lambda: problem(chunk=0), ValueError, "chunk must be … at least 1, got 0"),
    ("half", lambda: problem(chunk=1.5), ValueError, "chunk must be an integer … got 1.5"),
)
def test_a_wrong_chunk_raises(provoke, error, text):
    assert_raises(provoke, error, text)
