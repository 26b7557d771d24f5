"""The folder of a measurement: one small file a cell, so that a killed run goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilevel.durable.files import write_text
from bilevel.durable.folders import check_folder
from bilevel.errors import UserError
from bilevel.lab.complexity.measure import Trial, trial_from_json
from bilevel.lab.complexity.studies import Cell, Study

_PLAN = "plan.json"


@dataclass(frozen=True)
class Folder:
    """Where the cells of some studies are stored."""

    path: Path

    def open(self, studies: Sequence[Study]) -> None:
        """Make the folder, or go on with it if it holds the same studies.

        Raises:
            UserError: it holds something else.
        """
        plan = {study.name: study.identity() for study in studies}
        if not (self.path / _PLAN).is_file():
            check_folder(self.path, force=False)
            (self.path / "cells").mkdir(parents=True, exist_ok=True)
            write_text(self.path / _PLAN, json.dumps(plan, indent=1, ensure_ascii=False))
        elif _read(self.path / _PLAN) != plan:
            raise UserError(
                f"the folder {self.path} holds measurements with other settings (see its "
                f"{_PLAN}): choose another with --output, or delete it"
            )

    def load(self, cell: Cell) -> list[Trial] | None:
        """The trials of a finished cell; None if it is not there."""
        file = self._file(cell)
        return list(map(trial_from_json, _read(file))) if file.is_file() else None

    def store(self, cell: Cell, trials: Sequence[Trial]) -> None:
        text = json.dumps([asdict(trial) for trial in trials], indent=1, ensure_ascii=False)
        write_text(self._file(cell), text)

    def _file(self, cell: Cell) -> Path:
        return self.path / "cells" / f"{cell.name}.json"


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): delete it and run again") from error
