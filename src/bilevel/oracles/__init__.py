"""The oracle: values, gradients and products of a problem, on flat vectors."""

from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.base import Linearization, Oracle
from bilevel.oracles.counting import CountingOracle, Counts
from bilevel.oracles.factory import make_oracle
from bilevel.oracles.heads import HeadOracle
from bilevel.oracles.networks import NetworkOracle
from bilevel.oracles.shared_batch import SharedBatch, at_step, parts_of_step
from bilevel.oracles.softmax import SoftmaxOracle

__all__ = [
    "AutogradOracle",
    "CountingOracle",
    "Counts",
    "HeadOracle",
    "Linearization",
    "NetworkOracle",
    "Oracle",
    "SharedBatch",
    "SoftmaxOracle",
    "at_step",
    "make_oracle",
    "parts_of_step",
]
