"""The run folder: where an experiment's results lie.

    RUN/experiment.toml                      the experiment, every default written out
    RUN/about.json                           versions, machine, time and command
    RUN/runs/<label>/seed-<k>/metrics.jsonl  a line for each evaluation
                              final.npz      x and y at the end
                              done.json      how it ended; absent until then
                              checkpoint/    where to go on; absent once it is done

Whole files appear at once, under their name, or not at all; lines are flushed as they come.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bilevel.algorithms import State
from bilevel.durable.about import about
from bilevel.durable.files import remove_parts, replacing, write_text
from bilevel.durable.lock import locked
from bilevel.durable.store import Store
from bilevel.errors import UserError
from bilevel.lab.experiments.experiment import Experiment, parse
from bilevel.problem.structure import Structure
from bilevel.runs.checkpoints.identity import Identity, differences, identity_of_settings
from bilevel.runs.checkpoints.past import pack, unpack
from bilevel.runs.result import Past, Result

Line = dict[str, Any]


@dataclass(frozen=True)
class Beginning:
    """Where a run begins: at its start, or where it was interrupted.

    Args:
        past: what lies behind it; None at its start.
        identity: of the run that was interrupted.
        last: the last line that was measured; None if there is none.
    """

    past: Past | None = None
    identity: Identity | None = None
    last: Line | None = None

    @property
    def state(self) -> State | None:
        return None if self.past is None else self.past.state


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
        *whole, _ = self._metrics.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in whole]

    def append(self, line: Line) -> None:
        with _named_errors(self.folder), self._metrics.open("a", encoding="utf-8") as file:
            file.write(_json_line(line))

    def save(self, past: Past, identity: Identity) -> None:
        """Write a checkpoint; a failure is a warning, and what was saved before stays."""
        try:
            self._store.save(past.state.step, {"identity": identity, "past": pack(past)})
        except OSError as error:
            warnings.warn(
                f"a checkpoint could not be written to {self.folder} ({error}): those before it "
                "are kept, and the next is tried",
                RuntimeWarning,
                stacklevel=2,
            )

    def begin(self) -> Beginning:
        """Make the folder ready, and say where to begin: an interrupted run goes on."""
        with _named_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_parts(self.folder)
            content = self._store.load() or {}
            past = unpack(content["past"]) if content else None
            last_step = past.state.step if past else -1
            kept = [line for line in self.lines() if line["step"] <= last_step]
            write_text(self._metrics, "".join(map(_json_line, kept)))
        return Beginning(past, content.get("identity"), kept[-1] if kept else None)

    def finish(self, result: Result) -> None:
        ending = {"status": str(result.status), "message": result.message}
        with _named_errors(self.folder):
            with replacing(self.folder / "final.npz") as part, part.open("wb") as file:
                np.savez(file, x=_array(result.x), y=_array(result.y))
            write_text(self.folder / "done.json", json.dumps(ending, indent=2) + "\n")
        self._store.clear()

    @property
    def _metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def _store(self) -> Store:
        return Store(self.folder / "checkpoint")


@dataclass(frozen=True)
class RunFolder:
    """The folder of an experiment."""

    folder: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep other processes out of it."""
        with _named_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            yield

    def open(self, experiment: Experiment, command: str) -> None:
        """Write down what is run, or go on with what is there if it is the same experiment."""
        resolved = experiment.resolved()
        path = self.folder / "experiment.toml"
        if path.exists():
            self._check_same(parse(path.read_text(encoding="utf-8"), str(path)), resolved)
        with _named_errors(self.folder):
            remove_parts(self.folder)
            write_text(path, resolved.to_toml())
            write_text(self.folder / "about.json", json.dumps(about(command), indent=2) + "\n")

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

    def begun(self, experiment: Experiment) -> dict[str, dict[int, list[Line]]]:
        """The lines of those runs that have some."""
        runs = {
            label: {seed: lines for seed, lines in runs.items() if lines}
            for label, runs in self.histories(experiment).items()
        }
        return {label: seeds for label, seeds in runs.items() if seeds}

    def _check_same(self, old: Experiment, new: Experiment) -> None:
        """More seeds may be asked for; anything else would mix two experiments."""
        before, after = old.model_dump(), new.model_dump()
        changed = [key for key in before if before[key] != after[key]]
        if different := [key for key in changed if key not in ("seeds", "sweep", "title")]:
            was, is_now = (
                {name: word for key in different for name, word in _words(key, table).items()}
                for table in (before, after)
            )
            raise UserError(
                f"{self.folder} holds runs with another {', '.join(different)}: choose another "
                f"folder with -o, or delete it ({'; '.join(differences(was, is_now))})"
            )


def _words(key: str, table: dict[str, Any]) -> Identity:
    return identity_of_settings(key, table[key])


@contextmanager
def _named_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write to {folder} ({error}): what was done is kept. Make room, or choose "
            "another folder with -o."
        ) from error


def _json_line(line: Line) -> str:
    finite = {key: value for key, value in line.items() if value is None or math.isfinite(value)}
    return json.dumps({**dict.fromkeys(line), **finite}) + "\n"  # JSON has no NaN


def _array(variable: Any) -> Any:
    """A tensor as it is; a structure of tensors flat."""
    if not isinstance(variable, torch.Tensor):
        variable = Structure("variable", variable).join(variable)
    return variable.numpy(force=True)
