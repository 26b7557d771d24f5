"""What is measured: which methods, on which problems, for which κ and ε."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bilevel.lab.complexity.family import Family, make_family
from bilevel.lab.complexity.methods import DETERMINISTIC, STOCHASTIC, Method, Scale
from bilevel.lab.complexity.walls import BentWall, RoundWall, Wall


@dataclass(frozen=True)
class Study:
    """A table's measurements on one family.

    Args:
        name: in files.
        title: for readers.
        table: 1 or 2.
        wall: what makes the family's wall of κ.
        steepness: the power of κ that the family's L_Φ has.
        methods: the rows.
        kappas: rising.
        epsilons: falling.
        rows: of the finite sums; None for deterministic problems.
        seeds: of the problems.
        calls: the most calls of the oracle that a run may make.
    """

    name: str
    title: str
    table: int
    wall: Callable[[float], Wall]
    steepness: int
    methods: tuple[Method, ...]
    kappas: tuple[float, ...]
    epsilons: tuple[float, ...]
    rows: int | None
    seeds: int
    calls: int

    def cells(self) -> Iterator[Cell]:
        """All measurements, one seed after the other."""
        for seed, kappa, method in itertools.product(range(self.seeds), self.kappas, self.methods):
            yield Cell(self, method, kappa, seed)

    def identity(self) -> dict[str, Any]:
        """What a stored cell depends on, beside its name."""
        return {
            "methods": {method.name: method.settings for method in self.methods},
            "epsilons": list(self.epsilons),
            "rows": self.rows,
            "calls": self.calls,
        }


@dataclass(frozen=True)
class Cell:
    """A method on one problem."""

    study: Study
    method: Method
    kappa: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.study.name}-{self.method.name}-kappa-{self.kappa:g}-seed-{self.seed}"

    def family(self) -> Family:
        return make_family(self.study.wall(self.kappa), self.seed, self.study.rows)

    def scale(self, family: Family) -> Scale:
        return Scale(self.kappa, family.smoothness, self.study.epsilons[-1])


BENT = Study(
    name="bent",
    title="a bent inner loss, ρ = 1 and L_Φ of order κ³",
    table=1,
    wall=BentWall,
    steepness=3,
    methods=DETERMINISTIC,
    kappas=(6, 8, 11, 15, 20),
    epsilons=(1.0, 0.7, 0.5, 0.35, 0.25),
    rows=None,
    seeds=4,
    calls=3_000_000,
)
QUADRATIC = replace(
    BENT,
    name="quadratic",
    title="a quadratic inner loss, ρ = τ = 0 and L_Φ of order κ²",
    wall=RoundWall,
    steepness=2,
    kappas=(8, 12, 16, 24, 32),
)
SAMPLED = replace(
    QUADRATIC,
    name="sampled",
    title="sums of quadratic inner losses, ρ = τ = 0 and L_Φ of order κ²",
    table=2,
    methods=STOCHASTIC,
    kappas=(4, 5, 6, 8),
    epsilons=(1.0, 0.7, 0.5, 0.35),
    rows=20_000,
    calls=600_000,
)
FULL = (BENT, QUADRATIC, SAMPLED)
QUICK = (
    replace(BENT, kappas=(6, 9), epsilons=(1.0, 0.7, 0.5), seeds=2),
    replace(QUADRATIC, kappas=(8, 14), epsilons=(1.0, 0.7, 0.5), seeds=2),
    replace(SAMPLED, kappas=(3, 4), epsilons=(2.0, 1.4, 1.0), seeds=2),
)
