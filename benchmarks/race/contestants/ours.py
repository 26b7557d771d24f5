"""bilevel, by its public interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import bilevel
from bilevel.algorithms import BSA, TTSA, AIDBiO, Algorithm, ITDBiO, StocBiO
from bilevel.oracles import View, make
from race.case import Array, Case


def problem(case: Case) -> bilevel.Problem:
    cleaning = case.ridge is not None
    return bilevel.softmax_problem(
        (case.X, case.labels),
        (case.V, case.validation_labels),
        weights=bilevel.SigmoidWeights() if cleaning else None,
        penalty=bilevel.Ridge(case.ridge) if case.ridge is not None else bilevel.PerFeature(),
        classes=case.classes,
    )


def implicit(case: Case) -> Callable[[], Array]:
    algorithm = AIDBiO(
        inner_steps=case.count("D"),
        inner_lr=case.settings["alpha"],
        cg_steps=case.count("N"),
        outer_lr=1.0,
    )
    return _first_hypergradient(case, algorithm)


def unrolled(case: Case) -> Callable[[], Array]:
    algorithm = ITDBiO(inner_steps=case.count("D"), inner_lr=case.settings["alpha"], outer_lr=1.0)
    return _first_hypergradient(case, algorithm)


def exact(case: Case) -> Callable[[], Array]:
    """No number but the accuracy; the oracle and what it keeps are made inside of the clock."""
    stated: Any = problem(case)
    algorithm: Any = AIDBiO(accuracy=0.01, outer_lr=1.0)

    def run() -> Array:
        oracle = make(stated)
        start = algorithm.init(oracle, stated.x0, stated.y0)
        found: Array = algorithm.step(View.of(oracle), start)[1].direction.numpy()
        return found

    return run


def stochastic(case: Case) -> Callable[[], Array]:
    """Draws its rows by itself, inside of the clock: with seed 0, those of `case.rows`."""
    return _steps(case, make(problem(case)))


def stochastic_given_rows(case: Case) -> Callable[[], Array]:
    oracle: Any = make(problem(case))
    given = [
        {role: list(torch.from_numpy(found)) for role, found in rows.items()} for rows in case.rows
    ]
    oracle.streams = lambda k: GivenRows(given[k])
    return _steps(case, oracle)


class GivenRows:
    """Stands for `bilevel.problem.sampling.Streams`, with its rows drawn before."""

    def __init__(self, rows: dict[str, list[torch.Tensor]]) -> None:
        self._left = {role: iter(found) for role, found in rows.items()}
        self._products = len(rows["hessian"])

    def rows(self, role: str, size: int) -> torch.Tensor:
        return next(self._left[role])

    def batches(self, role: str, size: int, count: int) -> list[torch.Tensor]:
        return [self.rows(role, size) for _ in range(count)]

    def of_sizes(self, role: str, sizes: list[int]) -> list[torch.Tensor]:
        return [self.rows(role, size) for size in sizes]

    def below(self, bound: int) -> int:
        return self._products

    def available(self, role: str) -> int:
        return 10**9

    def size(self, role: str, size: int) -> int:
        return size


def _algorithm(case: Case) -> Any:
    set_to, sizes = case.settings, case.rows[0]["inner"].shape[1]
    shared: dict[str, Any] = {
        "neumann_terms": case.count("Q"),
        "neumann_lr": set_to["eta"],
        "inner_lr": set_to["alpha"],
        "outer_lr": set_to["beta"],
        "batch": sizes,
    }
    if not set_to.get("truncated"):
        return StocBiO(inner_steps=case.count("D"), **shared)
    return TTSA(**shared) if case.count("D") == 1 else BSA(inner_steps=case.count("D"), **shared)


def _steps(case: Case, oracle: Any) -> Callable[[], Array]:
    stated, algorithm = problem(case), _algorithm(case)

    def run() -> Array:
        state = algorithm.init(oracle, stated.x0, stated.y0)
        if algorithm.stretches and not isinstance(oracle.streams(0), GivenRows):
            # As `minimize` does between two evaluations of f.
            return algorithm.stretch(oracle, state, len(case.rows))[0].x.numpy()  # type: ignore[no-any-return]
        for _ in case.rows:
            state, _ = algorithm.step(View.of(oracle, state.step), state)
        found: Array = state.x.numpy()
        return found

    return run


def _first_hypergradient(case: Case, algorithm: Algorithm) -> Callable[[], Array]:
    stated = problem(case)
    oracle = make(stated)

    def run() -> Array:
        start = algorithm.init(oracle, stated.x0, stated.y0)
        return algorithm.step(View.of(oracle), start)[1].direction.numpy()

    return run
