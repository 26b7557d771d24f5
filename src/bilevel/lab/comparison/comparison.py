"""The runs of one experiment, side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bilevel.errors import UserError, quoted
from bilevel.lab.curves import Curve
from bilevel.lab.quantities import AXES, METRICS, Axis, Metric
from bilevel.lab.run_folder import Folder


@dataclass(frozen=True)
class Comparison:
    """Algorithms of one experiment with their seeds.

    Args:
        folders: where the runs are.
        settings: each algorithm's table, by label.
        curves: what is compared: each algorithm's seeds, by label.
        left_out: the curves of unfinished runs.
        more: the user's own metrics.
    """

    folders: tuple[Folder, ...]
    settings: dict[str, dict[str, Any]]
    curves: dict[str, list[Curve]]
    left_out: list[Curve]
    more: tuple[Metric, ...] = ()

    @property
    def experiment(self) -> dict[str, Any]:
        """The experiment that all the runs belong to."""
        return self.folders[0].experiment

    @property
    def metrics(self) -> list[Metric]:
        """Those that were measured at all."""
        known = (*METRICS, *self.more)
        return [m for m in known if not all(math.isnan(end) for end in self._last(m.column))]

    @property
    def axes(self) -> list[Axis]:
        """Those along which some run has gone forward."""
        return [
            axis
            for axis in AXES
            if any(end > 0 for column in axis.columns for end in self._last(column))
        ]

    def _last(self, column: str) -> list[float]:
        return [curve.last(column) for seeds in self.curves.values() for curve in seeds]


def compare(folders: Sequence[Folder], *, unfinished: bool = False) -> Comparison:
    """Put the runs of one experiment side by side.

    Args:
        folders: with the same data and problem; algorithms and seeds may differ.
        unfinished: include runs that are still going or that crashed, as far as they got.

    Raises:
        UserError: different experiments; one label with two settings; a seed twice; none finished.
    """
    for other in folders[1:]:
        _check_same_problem(folders[0], other)
    settings = _merge_settings(folders)
    curves = [curve for folder in folders for curve in folder.curves]
    for (label, seed), times in Counter((c.label, c.seed) for c in curves).items():
        if times > 1:
            raise UserError(f"{label} with seed {seed} is in two of the run folders")
    taken = sorted(
        (c for c in curves if unfinished or c.status is not None), key=lambda curve: curve.seed
    )
    if not taken:
        places = ", ".join(str(folder.path) for folder in folders)
        raise UserError(
            f"no run in {places} has finished: wait, or include unfinished runs with --unfinished"
        )
    labels = [*settings, *sorted({curve.label for curve in taken} - settings.keys())]
    groups = {label: [c for c in taken if c.label == label] for label in labels}
    return Comparison(
        folders=tuple(folders),
        settings=settings,
        curves={label: group for label, group in groups.items() if group},
        left_out=[] if unfinished else [curve for curve in curves if curve.status is None],
    )


def _check_same_problem(one: Folder, two: Folder) -> None:
    ours, theirs = _statement(one), _statement(two)
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            raise UserError(
                f"{one.path} and {two.path} are different experiments: {key} is "
                f"{quoted(ours.get(key))} and {quoted(theirs.get(key))}; make one report for each"
            )


def _statement(folder: Folder) -> dict[str, Any]:
    problem = folder.experiment.get("problem", {})
    return {"data": folder.experiment.get("data")} | {
        f"problem.{key}": value for key, value in problem.items()
    }


def _merge_settings(folders: Sequence[Folder]) -> dict[str, dict[str, Any]]:
    settings: dict[str, dict[str, Any]] = {}
    for folder in folders:
        for label, table in folder.settings.items():
            if settings.setdefault(label, table) != table:
                raise UserError(
                    f"the label {quoted(label)} has different settings in {folder.path} than in "
                    "the folders before it: rename it in one of them"
                )
    return settings
