"""What a measured power says of an order, which is an upper bound."""

from __future__ import annotations

from enum import StrEnum

from bilevel.lab.complexity.fits import Exponent, Fit
from bilevel.lab.complexity.orders import Order

_NEAR = 0.3  # what the family's tail and the short range of κ and ε can do to a power


class Standing(StrEnum):
    """Where a measured power stands."""

    ATTAINED = "attains"
    WITHIN = "within"
    NOT_ABOVE = "not above"
    ABOVE = "above"


def standing(measured: Exponent, order: float) -> Standing:
    """Attained if the whole interval is near the order; within or above if it does not come near.

    An interval that is too wide for one of these is "not above".

    Example:
        >>> [str(standing(Exponent(m, m - 0.2, m + 0.2), 3.0)) for m in (2.0, 2.6, 3.0, 3.2, 3.6)]
        ['within', 'not above', 'attains', 'attains', 'above']
    """
    if measured.low > order + _NEAR:
        return Standing.ABOVE
    if measured.high < order - _NEAR:
        return Standing.WITHIN
    return Standing.ATTAINED if measured.low >= order - _NEAR else Standing.NOT_ABOVE


def compare(fit: Fit, order: Order, name: str) -> str:
    """A verdict in words on both powers, e.g. "attains the paper's order"."""
    in_epsilon = standing(fit.epsilon, order.epsilon)
    if order.kappa is None:
        return f"{in_epsilon} {name} in ε; in κ the paper gives no power"
    in_kappa = standing(fit.kappa, order.kappa)
    if in_kappa is in_epsilon:
        return f"{in_kappa} {name}"
    return f"{in_kappa} {name} in κ, {in_epsilon} it in ε"


def verdict(fit: Fit | None, printed: Order | None, theorem: Order | None) -> str:
    """What a cell of the table says.

    Args:
        fit: what was measured.
        printed: the paper's order.
        theorem: what its theorem gives for the family, if that is less than what is printed.
    """
    if fit is None:
        return "not measured: too few runs reached ε"
    if printed is None:
        return "no theorem covers it"
    said = compare(fit, printed, "the paper's order")
    if theorem is not None and theorem != printed:
        said += "; " + compare(fit, theorem, "the one for ρ = τ = 0")
    if fit.missing:
        said += f"; {fit.missing} of {fit.missing + fit.measured} did not reach ε and are left out"
    return said
