"""The run folder: where an experiment's results lie.

    RUN/experiment.toml                      the experiment, every default written out
    RUN/about.json                           versions, machine, time and command
    RUN/runs/<label>/seed-<k>/metrics.jsonl  a line for each evaluation
                              final.npz      x and y at the end
                              done.json      how it ended; absent until then
                              checkpoint.pt  where to go on; absent once it is done

Whole files appear at once, under their name, or not at all; lines are flushed as they come.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bilevel.algorithms import State
from bilevel.environment import about
from bilevel.errors import UserError
from bilevel.experiments.experiment import Experiment, parse
from bilevel.oracles import Counts
from bilevel.result import Result
from bilevel.structure import Structure
from bilevel.whole_files import replacing, write_text

Line = dict[str, Any]
_CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True)
class Checkpoint:
    """Where an interrupted run goes on, or the start of a new one."""

    state: State | None = None
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True)
class RunLog:
    """The folder of one algorithm and seed."""

    folder: Path

    @property
    def done(self) -> bool:
        return (self.folder / "done.json").exists()

    def lines(self) -> list[Line]:
        """What was measured so far; a last line that a crash cut short is left out."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        *whole, _ = path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in whole]

    def append(self, line: Line) -> None:
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(_json_line(line))

    def save(self, checkpoint: Checkpoint) -> None:
        content = {
            "state": checkpoint.state,
            "seconds": checkpoint.seconds,
            "counts": dict(checkpoint.counts),
        }
        with replacing(self.folder / _CHECKPOINT) as part:
            torch.save(content, part)

    def begin(self) -> Checkpoint:
        """Make the folder ready, and say where to begin: an interrupted run goes on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        start, last_step = Checkpoint(), -1
        if (self.folder / _CHECKPOINT).exists():
            content = torch.load(self.folder / _CHECKPOINT, weights_only=True)
            start = Checkpoint(content["state"], content["seconds"], Counts(**content["counts"]))
            last_step = content["state"].step
        kept = [line for line in self.lines() if line["step"] <= last_step]
        write_text(self.folder / "metrics.jsonl", "".join(map(_json_line, kept)))
        return start

    def finish(self, result: Result) -> None:
        with replacing(self.folder / "final.npz") as part, part.open("wb") as file:
            np.savez(file, x=_array(result.x), y=_array(result.y))
        ending = {"status": str(result.status), "message": result.message}
        write_text(self.folder / "done.json", json.dumps(ending, indent=2) + "\n")
        (self.folder / _CHECKPOINT).unlink(missing_ok=True)


@dataclass(frozen=True)
class RunFolder:
    """The folder of an experiment."""

    folder: Path

    def open(self, experiment: Experiment, command: str) -> None:
        """Make the folder, or go on with the one that is there if it holds the same experiment."""
        resolved = experiment.resolved()
        path = self.folder / "experiment.toml"
        if path.exists():
            self._check_same(parse(path.read_text(encoding="utf-8"), str(path)), resolved)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(path, resolved.to_toml())
            write_text(self.folder / "about.json", json.dumps(about(command), indent=2) + "\n")
        except OSError as error:
            raise UserError(f"cannot write to {self.folder}: {error}") from error

    def log(self, label: str, seed: int) -> RunLog:
        return RunLog(self.folder / "runs" / label / f"seed-{seed}")

    def histories(self, experiment: Experiment) -> dict[str, dict[int, list[Line]]]:
        """The lines of all runs, by label and seed."""
        return {
            contestant.label: {
                seed: self.log(contestant.label, seed).lines() for seed in experiment.seeds
            }
            for contestant in experiment.algorithms
        }

    def _check_same(self, old: Experiment, new: Experiment) -> None:
        """More seeds may be asked for; anything else would mix two experiments."""
        before, after = old.model_dump(), new.model_dump()
        changed = [key for key in before if before[key] != after[key]]
        if different := [key for key in changed if key not in ("seeds", "sweep", "title")]:
            raise UserError(
                f"{self.folder} holds runs with another {', '.join(different)}: choose another "
                "folder with -o, or delete it"
            )


def _json_line(line: Line) -> str:
    finite = {key: value for key, value in line.items() if value is None or math.isfinite(value)}
    return json.dumps({**dict.fromkeys(line), **finite}) + "\n"  # JSON has no NaN


def _array(variable: Any) -> Any:
    """A tensor as it is; a structure of tensors flat."""
    if not isinstance(variable, torch.Tensor):
        variable = Structure("variable", variable).join(variable)
    return variable.numpy(force=True)
