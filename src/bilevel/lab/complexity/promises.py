"""What the theorems promise for a problem of the family, with the constants of its assumptions."""

from __future__ import annotations

import math

from bilevel.lab.complexity.family import Family
from bilevel.lab.complexity.walls import BentWall
from bilevel.theory import Constant, Constants, Kind, Plan, plan

_GAP = 10.0  # Φ(x₀) − inf Φ: the valley lies below 1/s, and the wall begins near its bottom


def constants(family: Family) -> Constants:
    """L = 1 and the others, in closed form."""
    slopes = math.sqrt(0.25 + 1.0 + float(family.d @ family.d))  # valley, wall, bystanders
    values = {
        "mu": 1 / family.kappa,
        "L_g": 1.0,
        "cross": 1.0,
        "L_fx": 0.0,
        "L_fy": 1.0,
        "L_xx": 0.0,
        "M": slopes,
        "rho": 1.0 if isinstance(family.wall, BentWall) else 0.0,
        "tau": 0.0,
        "tau_x": 0.0,
        "sigma": _noise(family),
    }
    return Constants(**{n: Constant(v, Kind.BOUND, "of the family") for n, v in values.items()})


def _noise(family: Family) -> float:
    """σ at the start."""
    if family.noise is None:
        return 0.0
    n, y = family.noise, family.y0
    rows = n.h * family.eigenvalues * y - n.j * (family.J @ family.x0) - n.c
    return float(rows.square().sum(1).mean().sqrt())


def promise(family: Family, method: str, epsilon: float) -> Plan:
    """The plan of the method's theorem: "aid-bio", "itd-bio" or "stocbio"."""
    return plan(constants(family), method, epsilon, gap=_GAP, y_distance=0.0)
