"""Measure all cells of some studies, into a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bilevel.lab.complexity.fits import Trials
from bilevel.lab.complexity.folder import Folder
from bilevel.lab.complexity.measure import race
from bilevel.lab.complexity.studies import Study

Notify = Callable[[str, float, int], None]


def measure(studies: Sequence[Study], path: Path, notify: Notify) -> dict[str, Trials]:
    """The trials of every study by its name; cells that the folder has are not measured again.

    Args:
        studies: what to measure.
        path: the folder.
        notify: called with what goes on, how many cells are done, and how many there are.
    """
    folder = Folder(path)
    folder.open(studies)
    cells = [cell for study in studies for cell in study.cells()]
    found: dict[str, Trials] = {study.name: {} for study in studies}
    for done, cell in enumerate(cells):
        notify(f"{cell.method.title}, κ = {cell.kappa:g}", done, len(cells))
        trials = folder.load(cell)
        if trials is None:
            family = cell.family()
            candidates = cell.method.candidates(cell.scale(family))
            trials = race(family, candidates, cell.study.epsilons, cell.study.calls)
            folder.store(cell, trials)
        found[cell.study.name][cell.method.name, cell.kappa, cell.seed] = trials
    notify("done", len(cells), len(cells))
    return found
