"""The oracle: values, gradients and products of a problem, on flat vectors."""

from bilevel.models.heads.networks import NetworkOracle
from bilevel.models.heads.oracle import HeadOracle
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.base import Linearization, Oracle
from bilevel.oracles.counting import CountingOracle, Counts
from bilevel.oracles.make import make_oracle
from bilevel.oracles.shared_batch import SharedBatch, at_step, parts_of_step

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
