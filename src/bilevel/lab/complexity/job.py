"""Measure all cells of some studies into a folder: a file for each, so that a kill loses one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bilevel.durable.about import about, load
from bilevel.durable.files import write_text
from bilevel.lab.complexity.fits import Trials
from bilevel.lab.complexity.measure import race, trial_from_json
from bilevel.lab.complexity.page import write_page
from bilevel.lab.complexity.plots import write_figure
from bilevel.lab.complexity.studies import Cell, Study
from bilevel.lab.complexity.tables import as_markdown, lines
from bilevel.lab.notify import Notify
from bilevel.lab.plain_files import keep_plan, read_json, write_json

_RECORDS = "about.json"


def measure(
    studies: Sequence[Study], folder: Path, command: str, notify: Notify
) -> dict[str, Trials]:
    """The trials of every study by its name; cells that the folder has are not measured again.

    Raises:
        UserError: the folder holds something else.
    """
    plan = {study.name: study.identity() for study in studies}
    keep_plan(folder / "plan.json", plan, "measurements")
    (folder / "cells").mkdir(exist_ok=True)
    cells = [cell for study in studies for cell in study.cells()]
    if not all(_file(folder, cell).is_file() for cell in cells):  # else whoever made them stays
        write_json(folder / _RECORDS, [*read_json(folder / _RECORDS, list), about(command)])
    found: dict[str, Trials] = {study.name: {} for study in studies}
    for done, cell in enumerate(cells):
        notify(f"{cell.method.title}, κ = {cell.kappa:g}", done, len(cells))
        file = _file(folder, cell)
        if not file.is_file():
            write_json(file, _raced(cell))
        trials = [trial_from_json(trial) for trial in read_json(file, list)]
        found[cell.study.name][cell.method.name, cell.kappa, cell.seed] = trials
    notify("done", len(cells), len(cells))
    return found


def write_results(
    folder: Path, studies: Sequence[Study], found: Mapping[str, Trials], command: str
) -> None:
    """What a measurement leaves behind: report.html, STUDY.png, tables.md and counts.json."""
    write_page(folder / "report.html", studies, found, command)
    tables = [as_markdown(study, lines(study, found[study.name])) for study in studies]
    write_text(folder / "tables.md", "\n".join(tables))
    cells = [{"study": name, "cells": _cells(trials)} for name, trials in found.items()]
    *earlier, last = read_json(folder / _RECORDS, list) or [about(command)]
    record = {**last, "load_after": load(), **({"earlier": earlier} if earlier else {})}
    write_json(folder / "counts.json", {"about": record, "cells": cells})
    for study in studies:
        write_figure(folder / f"{study.name}.png", study, found[study.name])


def _file(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.json"


def _raced(cell: Cell) -> list[dict[str, Any]]:
    family = cell.family()
    candidates = cell.method.candidates(cell.scale(family))
    trials = race(family, candidates, cell.study.epsilons, cell.study.calls)
    return [asdict(trial) for trial in trials]


def _cells(trials: Trials) -> list[dict[str, Any]]:
    return [
        {"method": name, "kappa": kappa, "seed": seed, "trials": [asdict(t) for t in runs]}
        for (name, kappa, seed), runs in trials.items()
    ]
