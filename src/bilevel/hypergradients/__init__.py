"""Ways to estimate the hypergradient: implicit, through the inner steps, or by differences."""

from bilevel.hypergradients.accurate import AccurateAID
from bilevel.hypergradients.aggregated import Aggregated
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.hypergradients.central_value import CentralValue
from bilevel.hypergradients.finite_differences import FiniteDifferences
from bilevel.hypergradients.forward import EvolutionStrategy, Forward
from bilevel.hypergradients.itd import ITD
from bilevel.hypergradients.sama import SAMA, LastStep
from bilevel.hypergradients.shine import SHINE
from bilevel.hypergradients.starts import GivenStart, LearnedStart, Start
from bilevel.hypergradients.value_function import ValueFunction

__all__ = [
    "AID",
    "ITD",
    "SAMA",
    "SHINE",
    "AccurateAID",
    "Aggregated",
    "CentralValue",
    "Differentiation",
    "Estimate",
    "EvolutionStrategy",
    "FiniteDifferences",
    "Forward",
    "GivenStart",
    "LastStep",
    "LearnedStart",
    "Stand",
    "Start",
    "ValueFunction",
]
