"""The paper's analysis as code: constants, settings and error bounds."""

from bilevel.numerics.lanczos import Spectrum, extreme_eigenvalues
from bilevel.problem.constants import Constant, Kind
from bilevel.theory.constants import Constants
from bilevel.theory.estimates import estimate
from bilevel.theory.plans import Plan, plan
from bilevel.theory.start import aid_bio, itd_bio, plan_for, stocbio

__all__ = [
    "Constant",
    "Constants",
    "Kind",
    "Plan",
    "Spectrum",
    "aid_bio",
    "estimate",
    "extreme_eigenvalues",
    "itd_bio",
    "plan",
    "plan_for",
    "stocbio",
]
