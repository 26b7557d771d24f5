"""Every method without a number: it ends below its start, and near the solution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import BSA, SABA, SOBA, Algorithm, ITDBiO, StocBiO, named, registry
from bilevel.algorithms.contract import State
from bilevel.algorithms.judged import Judged
from bilevel.algorithms.single_loop import Directions
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import Streams

from .fresh import units
from .rows import sum_quad
from .smooth import D, log_cosh, quad, quartic, ridge
from .truth import truth

# MAML's Φ is another one: f after D steps from a start that is x.
METHODS = [name for name in registry() if name != "maml"]
FIVE = ("itd-bio", "stocbio", "soba", "saba", "f2sa")


def method(name: str) -> Algorithm:
    return named(name).algorithm()


def left(problem: bilevel.Problem, algorithm: Algorithm, best: float, **limits) -> float:
    """The part of Φ(x0) − Φ* that a run leaves."""
    result = bilevel.minimize(problem, algorithm, **limits)
    start = truth(problem, problem.x0, problem.y0)[0]
    return (truth(problem, result.x, problem.y0)[0] - best) / (start - best)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_solves_a_quadratic_of_condition_100(name: str) -> None:
    problem, best = quad(2, 4, 1e2, seed=5)
    assert left(problem, method(name), best, steps=15) <= 0.01


@pytest.mark.parametrize("name", ["moreau", "v-pbgd"])
def test_value_functions_begin_where_their_points_come_to_rest(name: str) -> None:
    problem = sum_quad(n=100, seed=0)
    best = truth(problem, bilevel.minimize(problem, steps=30).x, problem.y0)[0]
    assert left(problem, method(name), best, steps=6) <= 1e-3


@pytest.mark.parametrize("name", [*FIVE, "bda", "bamm", "bome", "f2sa-central"])
def test_a_constant_in_f_and_the_units_of_the_losses_do_not_matter(name: str) -> None:
    start = torch.ones(2, dtype=D)
    plain = bilevel.minimize(quad(2, 4, 1e2, seed=5, x0=start)[0], method(name), steps=3).x
    for change in ({"offset": 1e4}, {"f": 1e-6, "g": 1e6}):
        problem = quad(2, 4, 1e2, seed=5, x0=start, **change)[0]
        other = bilevel.minimize(problem, method(name), steps=3).x
        assert float((other - plain).norm()) <= 1e-3 * float(plain.norm())


@pytest.mark.parametrize("name", ["itd-bio", "soba", "bome", "bda"])
def test_units_of_x_are_met(name: str) -> None:
    for xs in (1e-3, 1e3):
        problem, best = quad(2, 4, 1e2, seed=5, xs=xs)
        assert left(problem, method(name), best, steps=15) <= 0.05


@pytest.mark.parametrize("name", ["aid-qn", "itd-bio", "soba"])
def test_a_first_step_far_too_long_does_not_end_on_a_plateau(name: str) -> None:
    usual, tiny = (units(20, 3, 1, low, low) for low in (0, -6))  # log-penalties
    best = truth(usual, bilevel.minimize(usual, steps=40).x, usual.y0)[0]
    assert left(tiny, method(name), best, steps=15) <= 0.01


@pytest.mark.parametrize("name", [*FIVE, "bome", "alset"])
def test_a_good_start_stays_good(name: str) -> None:
    problem, best = quad(2, 4, 1e2, seed=230, x0=0.0)  # x0 is the solution
    result = bilevel.minimize(problem, method(name), steps=2)
    assert truth(problem, result.x, problem.y0)[0] <= best + 1e-12 * abs(best)


def test_from_a_tiny_start_steps_are_not_tiny() -> None:
    for x0 in (0.0, 1e-8):  # the length was the size of x0
        problem = sum_quad(n=400, seed=60, x0=x0)
        best = truth(problem, bilevel.minimize(problem, steps=30).x, problem.y0)[0]
        assert left(problem, StocBiO(), best, steps=8) <= 0.05


@pytest.mark.parametrize("algorithm", [ITDBiO(), SOBA()], ids=["itd-bio", "soba"])
def test_curvature_that_grows_on_the_way_is_met(algorithm: Algorithm) -> None:
    problem = log_cosh(1, 10.0, 80, 2.0)
    best = truth(problem, bilevel.minimize(problem, steps=60).x, problem.y0)[0]
    assert left(problem, algorithm, best, steps=30) <= 0.01


@pytest.mark.parametrize("kappa", [1e2, 1e4])
def test_itd_is_honest_where_the_inner_problem_is_ill_conditioned(kappa: float) -> None:
    problem = quad(2, 6, kappa, seed=9)[0]
    tol = 1e-4 * float(truth(problem, problem.x0, problem.y0)[1].norm())
    result = bilevel.minimize(problem, ITDBiO(), steps=20, tol=tol)
    value, h, _ = truth(problem, result.x, problem.y0)
    assert value <= truth(problem, problem.x0, problem.y0)[0]
    assert result.status != "converged" or float(h.norm()) <= 2 * tol


def test_one_bad_penalty_does_not_freeze_the_others() -> None:
    x0 = torch.zeros(10, dtype=D)
    x0[0] = 7.0
    problem = ridge(n=600, p=10, seed=100, data=True, x0=x0)
    start = truth(problem, problem.x0, problem.y0)[0]
    end = truth(problem, bilevel.minimize(problem, SOBA(), steps=6).x, problem.y0)[0]
    usual = truth(problem, bilevel.minimize(problem, steps=30).x, problem.y0)[0]
    assert start - end >= 0.5 * (start - usual)


def test_noise_makes_batches_grow_and_never_leads_up() -> None:
    problem = sum_quad(n=2000, seed=62, heavy=True)
    first = bilevel.minimize(problem, SOBA(), steps=1).state.measured
    result = bilevel.minimize(problem, SOBA(), steps=15)
    values = [record.outer_value for record in result.history]
    assert "batch" not in first
    assert result.state.measured["batch"] > 256
    assert values[-1] <= values[0]


@dataclass(frozen=True, kw_only=True)
class Uphill(SOBA):
    """SOBA, whose x moves up in the chapters with these numbers."""

    chapters: tuple[int, ...] = ()
    begun: list[int] = field(default_factory=list)

    def begin(self, oracle: Oracle, points: Mapping[str, Tensor]) -> State:
        self.begun.append(len(self.begun))
        return super().begin(oracle, points)

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        found = super().directions(oracle, state, streams)
        sign = -1 if self.begun[-1] in self.chapters else 1
        return found._replace(by_point={**found.by_point, "x": sign * found.by_point["x"]})


def test_a_chapter_that_leads_nowhere_costs_no_step() -> None:
    problem, best = quad(2, 4, 1e2, seed=5)
    uphill = Judged(method=Uphill(chapters=tuple(range(15))))
    result = bilevel.minimize(problem, uphill, steps=8)
    start = truth(problem, problem.x0, problem.y0)[0]
    assert result.state.measured["lost"] == 8  # none of its ways was taken
    assert truth(problem, result.x, problem.y0)[0] - best <= 0.01 * (start - best)


def test_what_one_chapter_needed_is_not_asked_of_all() -> None:
    problem = quad(5, 10, 1e2, seed=5)[0]
    seen = [
        bilevel.minimize(
            problem, Judged(method=Uphill(chapters=(0, 1))), steps=steps
        ).state.measured
        for steps in (2, 5)
    ]
    assert [found["lost"] for found in seen] == [2, 2]
    assert [found["more"] for found in seen] == [4, 1]
    assert [found["left"] for found in seen] == [0.02, 0.2]


@dataclass(frozen=True, kw_only=True)
class Noted(BSA):
    """BSA, which notes the steps and terms that it was given."""

    notes: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, oracle: Oracle, points: Mapping[str, Tensor]) -> State:
        self.notes.append((self.inner_steps, self.neumann_terms))
        return super().begin(oracle, points)


def test_a_random_series_is_cut_to_one_term_before_inner_steps_are() -> None:
    noted = Noted()
    bilevel.minimize(quad(2, 4, 1e2, seed=5)[0], Judged(method=noted), steps=1)
    assert noted.notes == [(2, 1)]  # two of each would leave a fifth, in measured units


def test_random_series_are_short_enough_to_lead_somewhere() -> None:
    measured = bilevel.minimize(ridge(), method("sustain"), steps=8).state.measured
    assert "lost" not in measured


def test_a_step_with_products_in_each_inner_step_is_cut_short() -> None:
    counts = bilevel.minimize(quartic(1, 3.0), method("vrbo"), steps=1).counts
    assert counts.hv <= 1000  # 64 inner steps with 64 products each would be 16,384


@pytest.mark.parametrize("name", ["itd-bio", "f2sa"])
def test_a_first_chapter_costs_no_more_than_a_few_trials(name: str) -> None:
    """Where curvature changes on the way, 64 inner steps would be asked for, five times a trial."""
    problem = log_cosh(2, 30.0, 7, 2.0)
    counts = bilevel.minimize(problem, method(name), steps=1).counts
    assert counts.gc_g + counts.hv + counts.jv <= 150


def test_numbers_keep_the_papers_loop() -> None:
    problem = sum_quad(n=40)
    assert bilevel.chosen(problem, SOBA(batch=8)) == SOBA(batch=8)
    assert bilevel.chosen(problem, SOBA()) == Judged(method=SOBA())
    assert bilevel.chosen(problem, named("maml").algorithm()) == named("maml").algorithm()


@pytest.mark.parametrize("algorithm", [SABA(), StocBiO()], ids=["saba", "stocbio"])
def test_a_run_that_is_resumed_ends_at_the_same_bits(algorithm: Algorithm) -> None:
    problem = sum_quad(n=1000, seed=3)
    whole = bilevel.minimize(problem, algorithm, steps=4)
    half = bilevel.minimize(problem, algorithm, steps=2)
    rest = bilevel.minimize(problem, algorithm, steps=4, after=half.past)
    assert torch.equal(whole.x, rest.x)
    assert whole.counts == rest.counts
