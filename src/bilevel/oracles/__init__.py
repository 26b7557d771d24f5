"""The waist: points of a problem, and how they are made, counted, shared and sped up."""

from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.counting import CountingOracle
from bilevel.oracles.make import make
from bilevel.oracles.plans import do
from bilevel.oracles.points import Inner, Linear, Oracle, Outer, Plan, RidgeTerm, Start
from bilevel.oracles.prices import Counts, Price
from bilevel.oracles.views import SharedBatch, View, Views

__all__ = [
    "AutogradOracle",
    "CountingOracle",
    "Counts",
    "Inner",
    "Linear",
    "Oracle",
    "Outer",
    "Plan",
    "Price",
    "RidgeTerm",
    "SharedBatch",
    "Start",
    "View",
    "Views",
    "do",
    "make",
]
