"""The log of one run: its lines and its end, in a folder that also has its checkpoints.

What needs torch is imported where a run is written: reading a log takes a tenth of that time.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel.durable.files import remove_parts, replacing, write_text
from bilevel.durable.folders import named_errors
from bilevel.errors import UserError, quoted, refusing
from bilevel.lab.curves import Curve, Vector
from bilevel.lab.plain_files import parse_json, read_json, read_text, write_json

if TYPE_CHECKING:
    from bilevel.runs.result import Result

Line = dict[str, Any]


@dataclass(frozen=True)
class RunLog:
    """The folder of one algorithm and seed."""

    folder: Path

    @property
    def done(self) -> bool:
        return (self.folder / "done.json").exists()

    def lines(self) -> list[Line]:
        """What was measured so far; a last line that a crash cut short is left out."""
        if not self._metrics.exists():
            return []
        *whole, _ = read_text(self._metrics).split("\n")
        place = f"{self._metrics}, line"
        return [parse_json(text, dict, f"{place} {i}") for i, text in enumerate(whole, start=1)]

    def curve(self) -> Curve:
        """The same as columns, and how the run ended."""
        seed = re.fullmatch(r"seed-(\d+)", self.folder.name)
        if not seed:
            raise UserError(f"{self.folder} should be named seed-K, where K is a number")
        lines, done = self.lines(), read_json(self.folder / "done.json", dict)
        names = sorted({name for line in lines for name in line})
        return Curve(
            label=self.folder.parent.name,
            seed=int(seed[1]),
            columns={name: _column(name, lines, self._metrics) for name in names},
            status=str(done["status"]) if "status" in done else None,
            message=str(done.get("message") or ""),
        )

    def append(self, line: Line) -> None:
        with writing(self.folder), self._metrics.open("a", encoding="utf-8") as file:
            file.write(_json_line(line))

    def begin(self, last_step: float) -> Line | None:
        """Make the folder ready, with the lines up to a step; return the last of them."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_parts(self.folder)
            kept = [line for line in self.lines() if self._step(line) <= last_step]
            write_text(self._metrics, "".join(map(_json_line, kept)))
        return kept[-1] if kept else None

    @property
    def checkpoints(self) -> Path:
        """Where `minimize` keeps the run until it is done."""
        return self.folder / "checkpoint"

    def finish(self, result: Result) -> None:
        """Write down the solution and how the run ended."""
        ending = {"status": str(result.status), "message": result.message}
        with writing(self.folder):
            with replacing(self.folder / "final.npz") as part, part.open("wb") as file:
                np.savez(file, x=_array(result.x), y=_array(result.y))
            write_json(self.folder / "done.json", ending)
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def _step(self, line: Line) -> float:
        step = line.get("step")
        if not isinstance(step, int | float):
            raise UserError(
                f"{self._metrics}: a line has the step {quoted(step)}, not a number: delete the "
                f"folder {self.folder} to start this run again"
            )
        return step

    @property
    def _metrics(self) -> Path:
        return self.folder / "metrics.jsonl"


def writing(folder: Path) -> AbstractContextManager[None]:
    """Inside, a full disk or a forbidden folder is a UserError."""
    return named_errors(
        folder, "the results so far are kept. Make room, or choose another folder with -o."
    )


def _json_line(line: Line) -> str:
    finite = {key: value for key, value in line.items() if value is None or math.isfinite(value)}
    return json.dumps({**dict.fromkeys(line), **finite}) + "\n"  # JSON has no NaN


def _column(name: str, lines: list[Line], file: Path) -> Vector:
    raw = [line.get(name) for line in lines]
    with refusing(f"{file}: {quoted(name)} should have numbers only", TypeError, ValueError):
        values = np.array([math.nan if value is None else float(value) for value in raw])
    measured = np.array([value is not None for value in raw])
    return np.where(measured & ~np.isfinite(values), math.inf, values)


def _array(variable: Any) -> Any:
    """A tensor as it is; a structure of tensors flat."""
    import torch

    from bilevel.problem.structure import Structure

    if not isinstance(variable, torch.Tensor):
        variable = Structure("variable", variable).join(variable)
    return variable.numpy(force=True)
