"""Ways to estimate the hypergradient: implicit (AID) and iterative (ITD)."""

from bilevel.hypergradients.accurate import AccurateAID
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.hypergradients.itd import ITD
from bilevel.hypergradients.starts import GivenStart, LearnedStart, Start
from bilevel.hypergradients.value_function import ValueFunction

__all__ = [
    "AID",
    "ITD",
    "AccurateAID",
    "Differentiation",
    "Estimate",
    "GivenStart",
    "LearnedStart",
    "Stand",
    "Start",
    "ValueFunction",
]
