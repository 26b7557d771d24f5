"""What the user asked for, and what was made of the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bilevel.apps.cleaning.features import Encoded
from bilevel.apps.cleaning.tables import LabelledTable
from bilevel.apps.holdout import Array


@dataclass(frozen=True)
class Request:
    """What the user asked for; see `bilevel clean --help`."""

    train: Path
    label: str
    trusted: Path | None
    output: Path
    trusted_column: str | None = None
    trusted_fraction: float = 1.0
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    algorithm: str = "aid-bio"
    ridge: float = 1e-3
    steps: int = 30
    seed: int = 0
    force: bool = False


@dataclass(frozen=True)
class Prepared:
    """Everything that the cleaning needs, checked; and what the user should be warned of."""

    request: Request
    train: LabelledTable
    features: Encoded
    labels: Array
    trusted_labels: Array
    classes: list[str]
    warnings: list[str]
