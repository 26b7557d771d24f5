"""An algorithm that keeps what its steps say of themselves: directions and solves."""

from __future__ import annotations

from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, State
from bilevel.oracles import Oracle, View, make
from bilevel.oracles.prices import Cost

from .quadratics import noisy_sum


def is_noisy(algorithm: Algorithm) -> bool:
    """Whether its first step says that it rests on batches."""
    problem = noisy_sum(rows=20).problem()
    oracle = make(problem)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    return algorithm.step(View.of(oracle), state)[1].noisy


class Watched(Algorithm):
    """Takes the steps of the algorithm that it is given; `reports` has one for each."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm, self.reports = algorithm, list[Report]()

    @property
    def directions(self) -> list[Tensor]:
        """The hypergradients that x moved along."""
        return [report.direction for report in self.reports]

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        return self.algorithm.init(oracle, x0, y0)

    def step(self, view: View, state: State) -> tuple[State, Report]:
        state, report = self.algorithm.step(view, state)
        self.reports.append(report)
        return state, report

    def price(self, k: int) -> Cost:
        return self.algorithm.price(k)

    def stationarity(self, x: Tensor, direction: Tensor, k: int) -> float:
        return self.algorithm.stationarity(x, direction, k)

    def adapt(self, oracle: Oracle, x: Tensor, y: Tensor, k: int) -> Tensor:
        return self.algorithm.adapt(oracle, x, y, k)
