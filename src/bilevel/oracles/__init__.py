"""The oracle: values, gradients and products of a problem, on flat vectors."""

from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.base import Linearization, Oracle
from bilevel.oracles.counting import CountingOracle, Counts
from bilevel.oracles.factory import make_oracle
from bilevel.oracles.softmax import SoftmaxOracle

__all__ = [
    "AutogradOracle",
    "CountingOracle",
    "Counts",
    "Linearization",
    "Oracle",
    "SoftmaxOracle",
    "make_oracle",
]
