"""Algorithms put together from parts: any inner solver, linear solver and update."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from bilevel.inner import LBFGS, SGD, GradientDescent, NewtonCG, Steps
from bilevel.linear import CG, Dense, FixedPoint, Neumann, RandomTruncation, SampledNeumann
from bilevel.updates import AdaGrad, Adam, Descent, Momentum, Nesterov, Projected, Update

import bilevel
from bilevel.algorithms import AIDBiO, DoubleLoop, ITDBiO, Parts, StocBiO, registry
from bilevel.hypergradients import AID, ITD, AccurateAID
from bilevel.oracles import CountingOracle, SharedBatch, View, make
from bilevel.problem.sampling import BatchSizes

from ..truth.dense_truth import relative
from ..truth.quadratics import noisy_sum, quadratic

Q = quadratic(1.5)
# What each needs to come to the solution of a well-conditioned quadratic.
UPDATES: dict[str, tuple[Update, int]] = {
    "descent": (Descent(0.3), 25),
    "momentum": (Momentum(0.2, beta=0.3), 30),
    "nesterov": (Nesterov(0.2, beta=0.3), 30),
    "adam": (Adam(0.3, betas=(0.5, 0.9), epsilon=1.0), 50),
    "adagrad": (AdaGrad(1.0), 60),
    "projected": (Projected(Descent(0.3), lambda x: x.clamp(-50, 50)), 25),
}
INNER = {
    "gradient descent": GradientDescent(15, 0.7),
    "sgd": SGD(15, 0.7, None),
    "momentum": Steps(Momentum(0.5, beta=0.2), 20),
    "kept momentum": Steps(Nesterov(0.5, beta=0.2), 15, keep=True),
    "newton": NewtonCG(1e-10),
    "l-bfgs": LBFGS(1e-9),
}
LINEAR = {
    "cg": CG(5),
    "dense": Dense(),
    "fixed point": FixedPoint(20, 0.7),
    "neumann": Neumann(20, 0.7),
    "sampled neumann": SampledNeumann(20, 0.7),
}


@pytest.mark.parametrize("name", UPDATES)
def test_aid_bio_with_any_update_comes_to_the_solution(name):
    update, steps = UPDATES[name]
    algorithm = AIDBiO(inner_steps=15, inner_lr=0.7, cg_steps=5, outer=update)
    result = bilevel.minimize(Q.problem(), algorithm, steps=steps, evaluate_every=steps)
    assert relative(result.x, Q.solution()) < 1e-4


@pytest.mark.parametrize("linear", LINEAR)
@pytest.mark.parametrize("inner", INNER)
def test_aid_bio_with_any_two_solvers_comes_to_the_solution(inner, linear):
    algorithm = AIDBiO(inner=INNER[inner], solver=LINEAR[linear], outer=Descent(0.3))
    parts = algorithm.parts(0)
    assert (parts.inner, parts.hypergradient) == (INNER[inner], AID(LINEAR[linear]))
    result = bilevel.minimize(Q.problem(), algorithm, steps=25, evaluate_every=25)
    assert relative(result.x, Q.solution()) < 1e-6


@pytest.mark.parametrize(
    "update",
    [
        Descent(0.7),
        Momentum(0.4, beta=0.3),
        Nesterov(0.4, beta=0.3),
        Adam(0.3, betas=(0.5, 0.9), epsilon=1.0),
    ],
    ids=str,
)
def test_itd_bio_through_any_inner_update_comes_to_the_solution(update):
    algorithm = ITDBiO(inner=Steps(update, 40), outer_lr=0.3)
    result = bilevel.minimize(Q.problem(), algorithm, steps=15, evaluate_every=15)
    assert relative(result.x, Q.solution()) < 1e-4


@pytest.mark.parametrize("outer", [Adam(0.1), Momentum(0.05, beta=0.5), AdaGrad(0.3)], ids=str)
@pytest.mark.parametrize("inner", [None, Steps(Momentum(0.2, beta=0.5), 4, 8, keep=True)], ids=str)
def test_stocbio_with_updates_nears_the_solution(inner, outer):
    q = noisy_sum(noise=0.2, kappa=1.5)
    algorithm = StocBiO(
        inner_steps=4, inner_lr=0.5, inner=inner, outer=outer, neumann_terms=4, neumann_lr=0.5,
        batch=8,
    )  # fmt: skip
    result = bilevel.minimize(q.problem(), algorithm, steps=50, evaluate_every=50)
    assert relative(result.x, q.solution()) < 0.25


def test_parts_say_whether_they_are_noisy():
    sizes, outer = BatchSizes(outer=3), Descent(0.1)
    quiet = [
        Parts(GradientDescent(3, 0.1), AID(CG(3)), outer),
        Parts(SGD(3, 0.1, None), ITD(), outer),
        Parts(Steps(Adam(0.1), 3), AID(SampledNeumann(3, 0.1, None)), outer),
        Parts(LBFGS(), AccurateAID(solver=CG(3)), outer),
    ]
    noisy = [
        Parts(SGD(3, 0.1, 2), AID(CG(3)), outer),
        Parts(Steps(Adam(0.1), 3, 2), ITD(), outer),
        Parts(GradientDescent(3, 0.1), AID(SampledNeumann(3, 0.1, 2)), outer),
        Parts(GradientDescent(3, 0.1), AID(RandomTruncation(3, 0.1, None)), outer),
        Parts(GradientDescent(3, 0.1), AID(CG(3), sizes), outer),
        Parts(LBFGS(), AccurateAID(solver=SampledNeumann(3, 0.1, 2)), outer),
    ]
    assert [parts.noisy for parts in quiet] == [False] * len(quiet)
    assert [parts.noisy for parts in noisy] == [True] * len(noisy)


@pytest.mark.parametrize("name", registry())
def test_what_is_counted_is_what_is_stated_over_four_steps(name):
    entry = registry()[name]
    short = {"inner_steps": 3, "cg_steps": 4, "neumann_terms": 5}
    algorithm = entry.make(**{key: short[key] for key in entry.demo if key in short})
    problem = noisy_sum(rows=20, sizes=(3, 30)).problem()
    oracle = CountingOracle(make(problem))
    state = algorithm.init(oracle, problem.x0, problem.y0)
    stated: dict[str, int] = {}
    counted: dict[str, int] = {}
    for k in range(4):
        before = oracle.counts
        state, _ = algorithm.step(View.of(oracle, k), state)
        price = algorithm.price(k)
        for kind, calls in price.known.items():
            stated[kind] = stated.get(kind, 0) + calls
            counted[kind] = counted.get(kind, 0) + (oracle.counts - before)[kind]
        assert set(dict(price)) == {"gc_f", "gc_g", "jv", "hv"}
    assert counted == stated
    assert stated.get("gc_f", 8) >= 8


@pytest.mark.parametrize("name", registry())
def test_a_measurement_is_left_out_of_the_price_and_nothing_else_is(name):
    """What is measured costs Hessian products, as many as the size of y allows."""
    entry = registry()[name]
    if not issubclass(entry.algorithm, DoubleLoop) or "inner" not in names(entry.algorithm):
        pytest.skip("it takes no inner solver")
    inner = GradientDescent(3, bilevel.inner.Measured())
    fixed = entry.make(inner=GradientDescent(3, 0.1)).price(1)
    measured = entry.make(inner=inner).price(1)
    assert measured.hv is None
    assert {**dict(measured), "hv": fixed.hv} == dict(fixed)


def names(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)}


def test_a_wrong_part_is_refused_when_the_algorithm_is_made():
    with pytest.raises(TypeError, match=r"inner must be an object such as .*LBFGS.*got 'newton'"):
        AIDBiO(inner="newton")
    with pytest.raises(TypeError, match=r"outer must be an object such as .*Adam.*got <class"):
        ITDBiO(outer=Adam)
    with pytest.raises(TypeError, match=r"solver must be an object such as .*CG.*got 3"):
        AIDBiO(solver=3)


def test_an_outer_update_is_told_the_outer_step_and_the_value_of_f():
    seen: list[tuple[int, float]] = []

    class Curious(Descent):
        def apply(self, point, gradient, memory, look):
            seen.append((look.step, look.value()))
            return super().apply(point, gradient, memory, look)

    algorithm = AIDBiO(inner_steps=60, inner_lr=0.4, cg_steps=10, outer=Curious(0.1))
    path = [torch.zeros(3).double()]
    bilevel.minimize(Q.problem(), algorithm, steps=4, callbacks=[lambda p: path.append(p.x)])
    assert [step for step, _ in seen] == [0, 1, 2, 3]
    values = [float(Q.phi(x)) for x in path[:4]]
    assert [value for _, value in seen] == pytest.approx(values, rel=1e-9)


def test_the_value_that_an_outer_update_sees_is_of_all_chunks():
    seen: list[float] = []

    class Curious(Descent):
        def apply(self, point, gradient, memory, look):
            seen.append(look.value())
            return super().apply(point, gradient, memory, look)

    problem = noisy_sum(rows=20).problem()
    whole = make(problem)
    chunks = [SharedBatch(whole, torch.arange(a, a + 10)) for a in (0, 10)]
    algorithm = AIDBiO(inner_steps=3, inner_lr=0.1, cg_steps=3, outer=Curious(0.1))
    start = algorithm.init(whole, problem.x0, problem.y0)
    after, _ = algorithm.step(View(0, whole, chunks), start)
    assert seen == [float(whole.outer(start.x, after.y).value())]


def test_an_inner_update_that_looks_at_f_is_refused_with_a_remedy():
    algorithm = AIDBiO(inner=Steps(bilevel.updates.MeasuredDescent(), 3), cg_steps=3, outer_lr=0.1)
    with pytest.raises(ValueError, match="value of the outer loss, which is available for x alone"):
        bilevel.minimize(Q.problem(), algorithm, steps=1)


def test_itd_tells_what_its_sweep_leaves() -> None:
    H = torch.diag(torch.tensor([1.0, 0.01], dtype=torch.float64))
    e = torch.ones(2, dtype=torch.float64)
    problem = bilevel.Problem(
        outer=lambda x, y: ((y - e) ** 2).sum() / 2,
        inner=lambda x, y: y @ H @ y / 2 - x @ y,
        x0=0 * e,
        y0=0 * e,
    )
    for steps, is_short in ((3, True), (600, False)):
        algorithm = bilevel.algorithms.ITDBiO(inner_steps=steps, inner_lr=1.0, outer_lr=1e-3)
        result = bilevel.minimize(problem, algorithm, steps=1)
        report = result.history[0].report
        # ∇y f = −e at y = 0, and I − αH leaves nothing of its first entry.
        assert report["linear_residual"] == pytest.approx(0.99 ** (steps - 1), rel=1e-9)
        assert (report["linear_status"] == "too_short") == is_short
        assert ("more inner_steps" in result.message) == is_short
