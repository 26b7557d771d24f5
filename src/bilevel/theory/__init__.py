"""The paper's analysis as something to run: constants, settings, error bounds."""

from bilevel.numerics.lanczos import Spectrum, extreme_eigenvalues
from bilevel.theory.constants import Constant, Constants, Kind
from bilevel.theory.estimates import estimate
from bilevel.theory.plans import Plan, plan
from bilevel.theory.start import plan_for

__all__ = [
    "Constant",
    "Constants",
    "Kind",
    "Plan",
    "Spectrum",
    "estimate",
    "extreme_eigenvalues",
    "plan",
    "plan_for",
]
