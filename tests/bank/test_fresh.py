"""Problems as a stranger brings them: the default ends below its start, and what it says is so."""

from __future__ import annotations

import pytest
import torch

import bilevel
from bilevel.algorithms import F2SA, SOBA, AIDBiO, Algorithm, AnchoredAID, ITDBiO, StocBiO
from bilevel.oracles import View, make

from . import fresh, zoo
from .smooth import singular
from .truth import truth

QUICK = {
    "penalties of 1e50": lambda: fresh.huber(),
    "few rows outside": lambda: fresh.unlike(5000, 40),
    "few rows inside": lambda: fresh.unlike(200, 5000, seed=601),
    "a model that falls for ever": lambda: fresh.domains(),
    "y0 where e^y is huge": lambda: fresh.counts(n=300, seed=441, y0=3.0),
    "x in units of 1e-5 to 1e5": lambda: fresh.units(),
    "shifts and gains": lambda: fresh.mixed(),
    "a constant in g": lambda: fresh.lifted(),
    "a few rows of great length": lambda: fresh.long_rows(),
    "exponential walls, from afar": lambda: fresh.walls(),
    "fewer rows than weights": lambda: fresh.interpolated(),
    "a logarithm outside of whose domain nothing is": lambda: zoo.barrier()(),
    "potentials known up to a constant": lambda: zoo.transport()(),
    "entries of y in units of 1e-8 to 1e8": lambda: zoo.stretched()(),
    "a field by its conductivities": lambda: zoo.conductor(cells=20)(),
}


def ends(problem: bilevel.Problem, algorithm: Algorithm | None, steps: int) -> bilevel.Result:
    """It ends below its start, and "converged" is true."""
    start, h, _ = truth(problem, problem.x0, problem.y0)
    tol = 1e-3 * float(h.norm())
    result = bilevel.minimize(problem, algorithm, steps=steps, tol=tol)
    x, y = problem.x_structure.flatten(result.x), problem.y_structure.flatten(result.y)
    end, h, _ = truth(problem, x, y)
    assert end <= start + 1e-9 * abs(start)
    assert result.status != "converged" or float(h.norm()) <= 2 * tol
    return result


@pytest.mark.parametrize("name", QUICK)
def test_the_default_converges(name: str) -> None:
    assert ends(QUICK[name](), None, 200).status == "converged"


def test_a_model_that_falls_for_ever_is_followed_within_reach_and_its_step_is_taken() -> None:
    problem, method = fresh.domains(), AnchoredAID()
    oracle = make(problem)
    state, _ = method.step(View.of(oracle), method.init(oracle, problem.x0, problem.y0))
    reach = 30 * max(1.0, float(problem.x0.abs().max())) * len(problem.x0) ** 0.5
    assert 0 < float((state.x - problem.x0).norm()) <= reach
    before, after = (truth(problem, x, problem.y0)[0] for x in (problem.x0, state.x))
    assert after < before


@pytest.mark.parametrize(
    "algorithm", [AIDBiO(), ITDBiO(), StocBiO(), SOBA()], ids=lambda a: type(a).__name__
)
@pytest.mark.parametrize(
    "name",
    ["few rows outside", "x in units of 1e-5 to 1e5", "exponential walls, from afar"],
)
def test_others_end_below_their_start(name: str, algorithm: Algorithm) -> None:
    ends(QUICK[name](), algorithm, 6)


def test_where_phi_falls_for_ever_nothing_has_converged() -> None:
    result = bilevel.minimize(fresh.endless(), steps=40, tol=1e-3)
    assert result.status in ("step_limit", "stalled", "diverged")
    assert bool(result.x.isfinite().all())


@pytest.mark.parametrize(
    "algorithm", [None, AIDBiO(), ITDBiO(), SOBA(), F2SA()], ids=lambda a: type(a).__name__
)
@pytest.mark.parametrize(
    "make", [lambda: fresh.interpolated(seed=661, other=True), lambda: singular(8, 4, 520, False)]
)
def test_where_y_is_not_determined_it_does_not_wander(make, algorithm: Algorithm | None) -> None:
    """∇y f has a part along directions in which g is flat: y stays there, and Φ does not rise."""
    problem = make()
    result = bilevel.minimize(problem, algorithm, steps=8, tol=1e-6)
    start, _, y0 = truth(problem, problem.x0, problem.y0)
    end = float(problem.outer(result.x, result.y))
    assert result.status not in ("converged", "diverged")
    assert end <= start
    assert float((result.y - y0).norm()) <= 100
    assert "not strongly convex" in result.message


def test_kinks_break_nothing() -> None:
    result = bilevel.minimize(fresh.kinked(), steps=20, tol=1e-6)
    assert result.status != "converged"  # the Hessian of |s − t| is the penalty's alone


def test_a_steep_border_is_no_divergence() -> None:
    problem = fresh.positive(seed=581, x0=0.1, link="root")  # ∇Φ grows as x goes to zero
    result = bilevel.minimize(problem, steps=60, tol=1e-6, evaluate_every=1000)
    assert result.status != "diverged"
    before = truth(problem, problem.x0, problem.y0)[0]
    assert truth(problem, result.x, problem.y0)[0] < before


def test_in_single_precision_many_rows_end_where_it_says() -> None:
    exact = fresh.single("ridge", 5000, dtype=torch.float64)
    tol = 1e-3 * float(truth(exact, exact.x0, exact.y0)[1].norm())
    result = bilevel.minimize(fresh.single("ridge", 5000), steps=60, tol=tol)
    assert result.status == "converged"
    assert float(truth(exact, result.x.double(), exact.y0)[1].norm()) <= 2 * tol
