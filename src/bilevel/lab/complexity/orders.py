"""Orders κ^p ε^−q: the paper's, those of its theory with ρ = τ = 0, and those of the family."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.lab.complexity.family import descent_order
from bilevel.lab.complexity.studies import Study
from bilevel.lab.quantities import COUNTS


@dataclass(frozen=True)
class Order:
    """O(κ^p ε^−q), with logarithms left out.

    Args:
        kappa: p; None where the paper has "poly(κ)".
        epsilon: q.

    Example:
        >>> print(Order(3.5, 1), Order(None, 2.5))
        κ^3.5 ε⁻¹ poly(κ) ε^−2.5
    """

    kappa: float | None
    epsilon: float

    def times(self, kappa: float = 0.0, epsilon: float = 0.0) -> Order:
        """With more powers of κ and of 1/ε."""
        assert self.kappa is not None
        return Order(self.kappa + kappa, self.epsilon + epsilon)

    def __str__(self) -> str:
        of_kappa = "poly(κ)" if self.kappa is None else f"κ{_power(self.kappa)}"
        return f"{of_kappa} ε{_power(-self.epsilon)}"


def _power(number: float) -> str:
    if number == int(number):
        return str(int(number)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"^{number:.3g}".replace("-", "−")


Orders = dict[str, Order]  # by count


def _orders(*pairs: tuple[float | None, float]) -> Orders:
    return {count: Order(*pair) for count, pair in zip(COUNTS, pairs, strict=True)}


# Tables 1 and 2 as printed; HV of stocBiO is κ⁷ by the proof's own choices (docs/errata.md, 2).
PRINTED: dict[str, Orders] = {
    "aid-bio": _orders((3, 1), (4, 1), (3, 1), (3.5, 1)),
    "itd-bio": _orders((3, 1), (4, 1), (4, 1), (4, 1)),
    "aid-bio-increasing": _orders((4, 1), (5, 1.25), (4, 1), (4.5, 1)),
    "stocbio": _orders((5, 2), (9, 2), (5, 2), (6, 2)),
    "bsa": _orders((6, 2), (9, 3), (6, 2), (6, 2)),
    "ttsa": _orders((None, 2.5), (None, 2.5), (None, 2.5), (None, 2.5)),
}

# The same theorems with L_Φ of order κ², as it is for ρ = τ = 0. S is then κ³/ε for κ⁵/ε, because
# the hypergradient feels ‖y − y*‖ with κ for κ². HV by the proof, not as printed.
WITHOUT_BENDING: dict[str, Orders] = {
    "aid-bio": _orders((2, 1), (3, 1), (2, 1), (2.5, 1)),
    "itd-bio": _orders((2, 1), (3, 1), (3, 1), (3, 1)),
    "stocbio": _orders((4, 2), (6, 2), (4, 2), (6, 2)),
}


def theorem(study: Study, method: str) -> Orders | None:
    """What the theorems give for the family of a study; None where there is none to adapt."""
    return (PRINTED if study.steepness == 3 else WITHOUT_BENDING).get(method)


def family_orders(study: Study, method: str) -> Orders | None:
    """What must be measured if the method moves x as exact gradient descent does.

    The steps K are known from `descent_order`, and the settings say what a step costs. For
    stocBiO the rows b that keep the noise below ε are taken as κ²/ε.
    """
    a = descent_order()
    K = Order(study.steepness + 2 * a - 2, a)
    assert K.kappa is not None
    Kb = K.times(2, 1)
    rows = {
        "aid-bio": (K, K.times(1), K, K.times(0.5)),
        "itd-bio": (K, K.times(1), K.times(1), K.times(1)),
        "aid-bio-increasing": (K, K.times(1 + K.kappa / 4, a / 4), K, K.times(0.5)),
        "stocbio": (Kb, Kb.times(2), Kb, Kb.times(2)),
    }
    return dict(zip(COUNTS, rows[method], strict=True)) if method in rows else None
