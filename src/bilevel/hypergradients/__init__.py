"""Ways to estimate the hypergradient: implicit (AID) and iterative (ITD)."""

from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation, Estimate
from bilevel.hypergradients.itd import ITD

__all__ = ["AID", "ITD", "Differentiation", "Estimate"]
