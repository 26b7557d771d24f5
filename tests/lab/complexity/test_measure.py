"""Prices, fits, orders and verdicts of `bilevel complexity`."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from bilevel.lab.complexity.family import make_family
from bilevel.lab.complexity.fits import Fit, Point, fit, fits, points, powers
from bilevel.lab.complexity.measure import Price, Trial, cheapest, race, run
from bilevel.lab.complexity.methods import DETERMINISTIC, STOCHASTIC, Scale
from bilevel.lab.complexity.page import promise
from bilevel.lab.complexity.studies import BENT, QUADRATIC, SAMPLED, Cell
from bilevel.lab.complexity.tables import (
    PRINTED,
    WITHOUT_BENDING,
    Order,
    as_markdown,
    as_text,
    compare,
    family_orders,
    lines,
    theorem,
    verdict,
)
from bilevel.lab.complexity.walls import BentWall, RoundWall
from bilevel.lab.experiments.rule import Interval, student
from bilevel.lab.quantities import COUNTS
from bilevel.oracles import AutogradOracle, View
from bilevel.theory.plans import plan

from ...truth.theory_problems import known

AID = DETERMINISTIC[0]
TINY = replace(
    BENT, methods=DETERMINISTIC[:2], kappas=(5, 10), epsilons=(1.0, 0.5), seeds=1, calls=100_000
)


def measured(study):
    """All trials of a study."""
    found = {}
    for cell in study.cells():
        family = cell.family()
        candidates = cell.method.candidates(cell.scale(family))
        trials = race(family, candidates, study.epsilons, study.calls)
        found[cell.method.name, cell.kappa, cell.seed] = trials
    return found


@pytest.fixture(scope="module")
def tiny():
    return measured(TINY)


def exact(p: float, low: float = 0.1, high: float = 0.1) -> Interval:
    return Interval(p, p - low, p + high)


def test_the_price_of_aid_bio_is_what_its_steps_cost() -> None:
    family = make_family(RoundWall(8.0), seed=0)
    candidate = AID.candidates(Scale(8.0, family.smoothness, 0.5))[0]
    trial = run(family, candidate, [0.5], calls=10**6)
    price = trial.prices[0]
    assert price is not None
    K, D, N = price.steps, 8, 3
    assert K > 5
    assert dict(price) == {
        "steps": K, "gc_f": 2 * K, "gc_g": D * K, "jv": K, "hv": (N + 1) * K - 1
    }  # fmt: skip
    assert (trial.ending, trial.steps, trial.calls) == ("reached", K, price.total)


def test_stochastic_prices_are_in_samples() -> None:
    family = make_family(RoundWall(3.0), seed=0, rows=1000)
    scale = Scale(3.0, family.smoothness, 2.0)
    stocbio = STOCHASTIC[0].candidates(scale)[-1]
    price = run(family, stocbio, [2.0], calls=10**5).prices[0]
    assert price is not None
    K, b = price.steps, 2
    assert price.gc_f == 2 * b * K
    assert price.gc_g == scale.inner_steps * 3 * b * K
    assert price.jv == b * K
    mu = 1 / 3
    sizes = [math.ceil(b * 6 * (1 - 0.8 * mu) ** j - 1e-9) for j in range(6)]
    assert price.hv == sum(sizes) * K


def test_a_price_is_that_of_the_first_step_at_which_the_last_half_is_stationary() -> None:
    family = make_family(RoundWall(8.0), seed=0)
    candidate = AID.candidates(Scale(8.0, family.smoothness, 0.5))[0]
    trial = run(family, candidate, [1.0, 0.5], calls=10**6)
    oracle = AutogradOracle(family.problem())
    state, squares = candidate.algorithm.init(oracle, family.x0, family.y0), []
    while True:
        squares.append(family.squared_gradient(state.x))
        half = squares[len(squares) // 2 :]
        if sum(half) / len(half) <= 0.5:
            break
        state, _ = candidate.algorithm.step(View.of(oracle, state.step), state)
    assert trial.prices[1] is not None
    assert trial.prices[1].steps == state.step


def test_a_run_that_is_stopped_leaves_its_unreached_epsilons_open() -> None:
    family = make_family(BentWall(9.0), seed=0)
    candidate = AID.candidates(Scale(9.0, family.smoothness, 1e-9))[0]
    trial = run(family, candidate, [1.0, 1e-9], calls=3000)
    assert trial.ending == "limit"
    assert trial.prices[0] is not None
    assert trial.prices[1] is None
    assert trial.last > 1e-9


def test_a_race_finds_the_cheapest_with_any_one_left_out_and_stops_the_dearer() -> None:
    family = make_family(RoundWall(9.0), seed=1)
    epsilons = (1.0, 0.5, 0.25)
    for method in (DETERMINISTIC[0], DETERMINISTIC[3]):
        candidates = method.candidates(Scale(9.0, family.smoothness, 0.25))
        raced = race(family, candidates, epsilons, calls=10_000)
        whole = [run(family, candidate, epsilons, calls=10_000) for candidate in candidates]
        assert sum(t.calls for t in raced) < sum(t.calls for t in whole)
        for number, left_out in itertools.product(range(3), ["none", *(t.label for t in whole)]):
            some, every = ([t for t in kind if t.label != left_out] for kind in (raced, whole))
            assert cheapest(some, number) == cheapest(every, number)


def trial(label: str, *totals: int | None) -> Trial:
    prices = tuple(None if n is None else Price(1, n, 0, 0, 0) for n in totals)
    return Trial(label, prices, "", 1, 1, 0.0)


def test_the_cheapest_is_chosen_for_each_epsilon() -> None:
    trials = [trial("a", 5, 9, None), trial("b", 6, 8, None)]
    assert [best and best[0] for best in (cheapest(trials, i) for i in range(3))] == [
        "a",
        "b",
        None,
    ]


def test_the_interval_holds_the_powers_of_grids_with_one_candidate_left_out() -> None:
    study = replace(TINY, methods=(AID,), kappas=(1, 10), epsilons=(1.0, 0.1), seeds=2)
    trials = {
        ("aid-bio", kappa, seed): [trial("a", at, 10 * at), trial("b", 2 * at, 40 * at)]
        for (kappa, at), seed in itertools.product(((1, 10), (10, 1000)), range(2))
    }
    found = fit(study, trials, AID, "gc_f")
    assert found is not None
    assert tuple(vars(found.kappa).values()) == pytest.approx((2, 2, 2))
    assert tuple(vars(found.epsilon).values()) == pytest.approx((1, 1, math.log10(20)))


def test_powers_are_recovered_from_a_ragged_grid() -> None:
    grid = [(k, e) for k in (4.0, 8.0, 16.0) for e in (1.0, 0.5, 0.1)][:-1]
    found = [Point(k, e, 0, 7 * k**2.5 * e**-0.75, "") for k, e in grid]
    assert powers(found) == pytest.approx((2.5, 0.75, 1.0))


def test_the_interval_holds_the_truth_in_95_of_100_samples() -> None:
    rng = np.random.default_rng(0)
    inside = [
        (e := student(list(rng.normal(3.0, 0.5, 4)))).low <= 3.0 <= e.high for _ in range(2000)
    ]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


def test_one_seed_has_no_interval() -> None:
    assert student([2.0]) == Interval(2.0, -math.inf, math.inf)


def test_what_was_not_reached_is_left_out_and_counted(tiny) -> None:
    study, trials = replace(TINY, methods=DETERMINISTIC[:1]), dict(tiny)
    whole = fit(study, trials, AID, "gc_f")
    assert whole is not None
    assert (whole.missing, whole.measured) == (0, 4)
    slow = trials["aid-bio", 10, 0]
    trials["aid-bio", 10, 0] = [replace(t, prices=(t.prices[0], None)) for t in slow]
    assert len(points(study, trials, AID, "gc_f")) == 3
    part = fit(study, trials, AID, "gc_f")
    assert part is not None
    assert (part.missing, part.measured) == (1, 3)
    assert "1 of 4 did not reach ε" in verdict(part, Order(3, 1), None)
    trials["aid-bio", 10, 0] = [replace(t, prices=(None, None)) for t in slow]
    assert fit(study, trials, AID, "gc_f") is None
    assert verdict(None, Order(3, 1), None).startswith("not measured")


def test_aid_and_itd_pay_the_paper_s_powers_where_the_inner_loss_is_bent(tiny) -> None:
    """Theorems 1 and 2 are tight on this family: κ³ outer steps, and 1/ε up to the tail's 0.05.

    With steps of at most 3/L_Φ: those of 4/L_Φ are stable at one of the two κ alone.
    """
    stable = {key: [t for t in runs if t.label != "β = 4/L_Φ"] for key, runs in tiny.items()}
    found = fits(TINY, stable)
    for method in ("aid-bio", "itd-bio"):
        for count in COUNTS:
            made, order = found[method, count], PRINTED[method][count]
            assert made is not None
            assert order.kappa is not None
            assert made.kappa.mean == pytest.approx(order.kappa, abs=0.35)
            assert made.epsilon.mean == pytest.approx(order.epsilon, abs=0.15)


def test_on_quadratics_aid_pays_a_kappa_less() -> None:
    study = replace(TINY, wall=RoundWall, steepness=2, methods=(AID,), kappas=(10, 20))
    made = fits(study, measured(study))["aid-bio", "gc_f"]
    assert made is not None
    assert made.kappa.mean == pytest.approx(2, abs=0.3)


def test_the_orders_without_bending_are_those_of_the_plans_with_rho_and_tau_zero() -> None:
    def costs(name: str, kappa: float, epsilon: float) -> np.ndarray:
        constants = known(mu=1 / kappa, L_g=1, cross=1, L_fy=1, M=1, sigma=1)
        made = plan(constants, name, epsilon)
        n = {row.letter: row.value for row in made.rows}
        K, D = made.steps, n["D"]
        rows = {
            "aid-bio": lambda: (2 * K, D * K, K, n["N"] * K),
            "itd-bio": lambda: (2 * K, D * K, D * K, D * K),
            "stocbio": lambda: (
                n["D_f"] * K, D * n["S"] * K, n["D_g"] * K, n["B"] * n["Q"] * K * kappa
            ),
        }  # fmt: skip
        return np.log(np.array(rows[name](), dtype=float))

    for name, orders in WITHOUT_BENDING.items():
        of_kappa = (costs(name, 1e7, 1e-3) - costs(name, 1e6, 1e-3)) / math.log(10)
        of_epsilon = (costs(name, 1e6, 1e-6) - costs(name, 1e6, 1e-5)) / math.log(10)
        right = [(order.kappa, order.epsilon) for order in orders.values()]
        found = list(zip(of_kappa, of_epsilon, strict=True))
        assert np.array(found) == pytest.approx(np.array(right), abs=0.12)  # the logarithms


def test_the_bent_family_is_compared_with_the_printed_orders_and_the_others_with_rho_zero() -> None:
    assert theorem(BENT, "aid-bio") == PRINTED["aid-bio"]
    assert theorem(QUADRATIC, "aid-bio") == WITHOUT_BENDING["aid-bio"]
    assert theorem(SAMPLED, "bsa") is None


def test_what_the_family_must_show_lies_just_below_the_theorem() -> None:
    for study in (BENT, QUADRATIC, SAMPLED):
        for method in study.methods:
            must, bound = family_orders(study, method.name), theorem(study, method.name)
            if must is None or bound is None or method.name == "aid-bio-increasing":
                continue
            for count in COUNTS:
                assert 0 <= bound[count].kappa - must[count].kappa < 0.2
                assert 0 <= bound[count].epsilon - must[count].epsilon < 0.1


@pytest.mark.parametrize(
    ("kappa", "epsilon", "says"),
    [
        (exact(2.9), exact(0.95), "attains the paper's order"),
        (exact(2.0), exact(0.4), "within the paper's order"),
        (exact(2.0), exact(0.95), "within the paper's order in κ, attains it in ε"),
        (exact(3.6), exact(0.95), "above the paper's order in κ, attains it in ε"),
        (exact(2.5, 2, 2), exact(0.8, 1, 1), "undecided against the paper's order"),
        (exact(2.5, 0.4, 0.4), exact(0.6, 0.4, 0.4), "not above the paper's order"),
    ],
)
def test_verdicts_follow_the_intervals(kappa: Interval, epsilon: Interval, says: str) -> None:
    made = Fit(kappa, epsilon, missing=0, measured=9, misfit=1.0)
    assert compare(made, Order(3, 1), "the paper's order") == says


def test_a_verdict_says_what_cannot_be_compared() -> None:
    made = Fit(exact(4.0), exact(2.4), missing=0, measured=9, misfit=1.0)
    said = verdict(made, Order(None, 2.5), None)
    assert said == "attains the paper's order in ε; in κ the paper gives no power"
    assert verdict(made, None, None) == "no theorem covers it"
    both = verdict(made, Order(9, 2.5), Order(4, 2.5))
    assert both.endswith("attains the one for ρ = τ = 0")


def test_the_tables_have_a_line_for_each_cell_of_the_paper_s(tiny) -> None:
    made = lines(TINY, tiny)
    assert [(line.method.name, line.count) for line in made] == [
        (name, count) for name in ("aid-bio", "itd-bio") for count in COUNTS
    ]
    text, markdown = as_text(TINY, made), as_markdown(TINY, made)
    assert "κ^3.5 ε⁻¹" in text
    assert text.count("\n") == 9
    assert markdown.count("| AID-BiO |") == 4
    assert "κ^2.91 ε^−0.955" in markdown


def test_the_theorem_s_own_numbers_are_far_above_the_measured_ones(tiny) -> None:
    for wall in (RoundWall, BentWall):
        family = make_family(wall(10.0), seed=0)
        best = cheapest(tiny["aid-bio", 10, 0], 1)
        assert best is not None
        assert promise(family, "aid-bio", 0.5).steps > 50 * best[1].steps


def test_every_cell_has_a_name_of_its_own() -> None:
    cells = [cell for study in (BENT, QUADRATIC, SAMPLED) for cell in study.cells()]
    assert len({cell.name for cell in cells}) == len(cells)
    assert isinstance(cells[0], Cell)
