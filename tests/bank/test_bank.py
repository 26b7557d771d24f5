"""With no number given: a part of the bank that is quick, of every family."""

from __future__ import annotations

import math

import pytest
import torch

import bilevel
from bilevel.algorithms import AIDQN, HOAG, AIDBiO, Algorithm, AnchoredAID

from .cases import Case, cases, large_cases, ridge_solution, stochastic_cases
from .rows import clean_autograd
from .smooth import quad, ridge
from .truth import truth

QUICK = {
    case.name: case for case in cases() if not case.name.startswith(("ijcnn1", "softmax/clean,n"))
}
SUMS = {case.name: case for case in [*stochastic_cases()[::5], *large_cases()[:9:4]]}
CHOSEN = [name for name in QUICK if "p300" not in name and "p1000" not in name][::5]


def ends(case: Case, algorithm: Algorithm | None, part: float) -> None:
    """It ends below its start, and what it says of its end is so."""
    problem = case.make()
    start, h, _ = truth(problem, problem.x0, problem.y0)
    tol = max(part * float(h.norm()), 1e-10)
    result = bilevel.minimize(problem, algorithm, steps=300, tol=tol)
    x, y = problem.x_structure.flatten(result.x), problem.y_structure.flatten(result.y)
    end, h, _ = truth(problem, x, y)
    assert end <= start + 1e-6 * abs(start)
    if case.name == "singular/outside":  # Φ is not defined
        assert result.status == "doubtful"
        return
    assert result.status in ("converged", "stalled", "step_limit", "doubtful")
    if result.status == "converged":
        assert float(h.norm()) <= 2 * tol
    if case.best is not None:
        assert end - case.best <= 0.01 * (start - case.best) + 1e-9 * abs(start)


@pytest.mark.parametrize("name", CHOSEN)
def test_aid_bio_ends_where_it_says(name: str) -> None:
    ends(QUICK[name], AIDBiO(), 1e-4)


@pytest.mark.parametrize("name", SUMS)
def test_sums_end_where_the_default_says(name: str) -> None:
    ends(SUMS[name], None, 1e-3)


def test_what_the_default_is() -> None:
    problem = quad(2, 3, 10.0)[0]
    assert bilevel.chosen(problem) == AIDQN()
    assert bilevel.chosen(SUMS["large quad/k10"].make()) == AnchoredAID()
    assert bilevel.chosen(problem, AIDBiO()) == bilevel.chosen(problem, HOAG()) == AIDQN()
    assert bilevel.chosen(problem, AIDBiO(outer_lr=0.1)) == AIDBiO(outer_lr=0.1)


def test_where_x_belongs_to_rows_its_second_step_is_no_shorter_than_from_a_plain_start() -> None:
    """One length has been tried, and it was a guess: the next may be a thousand times as long."""
    problem = clean_autograd(n=2000, seed=3)
    sampled = bilevel.minimize(problem, AnchoredAID(), steps=3).state.measured
    plain = bilevel.minimize(problem, AIDQN(drop=0.1, first=0.1), steps=2).state.measured
    assert sampled["share"] == 1.0
    assert sampled["longest"] == pytest.approx(plain["longest"], rel=0.1)


CHANGES = {
    "f+1e4": {"offset": 1e4},
    "f+1e6": {"offset": 1e6},
    "f*1e-6": {"f": 1e-6},
    "f*1e6": {"f": 1e6},
    "g*1e-6": {"g": 1e-6},
    "g*1e6": {"g": 1e6},
}


@pytest.mark.parametrize("change", CHANGES)
def test_constants_and_units_of_the_losses_do_not_matter(change: str) -> None:
    plain, _ = quad(5, 20, 1e2, seed=200)
    other, _ = quad(5, 20, 1e2, seed=200, **CHANGES[change])
    found = [bilevel.minimize(problem, AIDBiO(), steps=20).x for problem in (plain, other)]
    assert float((found[0] - found[1]).norm()) <= 1e-4 * float(found[0].norm())


@pytest.mark.parametrize("near", [0.0, 1e-3])
def test_a_good_start_is_never_thrown_away(near: float) -> None:
    x = ridge_solution()
    problem = ridge(x0=x + near)
    before = truth(problem, problem.x0, problem.y0)[0]
    result = bilevel.minimize(problem, AIDBiO(), steps=6)
    assert truth(problem, result.x, problem.y0)[0] <= before + 1e-9


def test_a_start_at_the_solution_stays_there() -> None:
    problem, best = quad(5, 20, 1e2, seed=230, x0=0.0)
    result = bilevel.minimize(problem, AIDBiO(), steps=30, tol=1e-8)
    assert result.status == "converged"
    assert float((result.x - problem.x0).norm()) <= 1e-8
    assert math.isclose(truth(problem, result.x, problem.y0)[0], best, rel_tol=1e-12)


def test_in_single_precision_it_ends_near_the_solution() -> None:
    torch.manual_seed(0)
    J, d = torch.randn(8, 3), torch.randn(8)
    problem = bilevel.Problem(
        outer=lambda x, y: ((y - d) ** 2).sum(),
        inner=lambda x, y: ((y - J @ x) ** 2).sum() + 0.1 * (y**2).sum(),
        x0=torch.zeros(3),
        y0=torch.zeros(8),
    )
    result = bilevel.minimize(problem, steps=50)
    right = torch.linalg.lstsq(J / 1.1, d).solution
    assert float((result.x - right).norm()) <= 1e-3 * float(right.norm())
