"""Reads the folders that `bilevel run` writes."""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bilevel.errors import UserError

Vector = NDArray[np.float64]
Json = TypeVar("Json", dict[str, Any], list[Any])


@dataclass(frozen=True)
class Trial:
    """One algorithm with one seed.

    Args:
        label: of the algorithm.
        seed: its number.
        columns: those of metrics.jsonl, a value a line; NaN where none was measured (null), and
            infinity where what was measured is not finite.
        status: how it ended; None while it is going on or after a crash.
        message: what the end means.
    """

    label: str
    seed: int
    columns: dict[str, Vector]
    status: str | None
    message: str = ""

    def last(self, column: str) -> float:
        """The last value that was measured; NaN if there is none."""
        values = self.columns.get(column, np.empty(0))
        measured = values[~np.isnan(values)]
        return float(measured[-1]) if len(measured) else math.nan


@dataclass(frozen=True)
class Run:
    """A run folder.

    Args:
        folder: where it is.
        toml: the text of experiment.toml.
        experiment: what that text says.
        about: versions, machine and command.
        trials: every algorithm and seed that has metrics.
        verdicts: rows of verdicts.json, if it is there.
        verdicts_text: verdicts.md, if it is there.
    """

    folder: Path
    toml: str
    experiment: dict[str, Any]
    about: dict[str, Any]
    trials: tuple[Trial, ...]
    verdicts: tuple[dict[str, Any], ...] = ()
    verdicts_text: str = ""

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The tables of the algorithms, by label, in the order of the experiment."""
        tables = self.experiment.get("algorithms", [])
        return {table["label"]: table for table in tables if "label" in table}


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        UserError: it is not one, has no metrics yet or has a damaged file.
    """
    file = folder / "experiment.toml"
    if not file.is_file():
        raise UserError(
            f"{folder} is not a run folder: it has no experiment.toml; "
            "make one with `bilevel run EXPERIMENT`"
        )
    toml = _read(file)
    try:
        experiment = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} is not TOML: {error}") from error
    trials = tuple(_read_trial(file) for file in sorted(folder.glob("runs/*/seed-*/metrics.jsonl")))
    trials = tuple(trial for trial in trials if trial.columns)
    if not trials:
        raise UserError(
            f"{folder} has no metrics yet: no line in any runs/LABEL/seed-K/metrics.jsonl; "
            "wait for the first evaluation, or start the run again"
        )
    text = folder / "verdicts.md"
    return Run(
        folder=folder,
        toml=toml,
        experiment=experiment,
        about=_read_json(folder / "about.json", dict),
        trials=trials,
        verdicts=tuple(_read_json(folder / "verdicts.json", list)),
        verdicts_text=_read(text) if text.is_file() else "",
    )


def _read_trial(metrics: Path) -> Trial:
    seed = re.fullmatch(r"seed-(\d+)", metrics.parent.name)
    if not seed:
        raise UserError(f"{metrics.parent} should be named seed-K, where K is a number")
    done = _read_json(metrics.parent / "done.json", dict)
    return Trial(
        label=metrics.parent.parent.name,
        seed=int(seed[1]),
        columns=_read_columns(metrics),
        status=str(done["status"]) if "status" in done else None,
        message=str(done.get("message") or ""),
    )


def _read_columns(file: Path) -> dict[str, Vector]:
    lines = _read(file).split("\n")
    lines.pop()  # empty, or cut short by a crash
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{file}, line {number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"{file}, line {number} should be a JSON object, but is {line[:40]!r}")
        records.append(record)
    names = {name for record in records for name in record}
    return {name: _column(name, records, file) for name in sorted(names)}


def _column(name: str, records: list[dict[str, Any]], file: Path) -> Vector:
    raw = [record.get(name) for record in records]
    try:
        values = np.array([math.nan if value is None else float(value) for value in raw])
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: {name!r} should have numbers only: {error}") from error
    measured = np.array([value is not None for value in raw])
    return np.where(measured & ~np.isfinite(values), math.inf, values)


def _read_json(file: Path, kind: type[Json]) -> Json:
    """What a file holds, or nothing of its kind if there is no file."""
    if not file.is_file():
        return kind()
    try:
        value = json.loads(_read(file))
    except json.JSONDecodeError as error:
        raise UserError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, kind):
        raise UserError(f"{file} should hold a JSON {kind.__name__}, but has {str(value)[:40]!r}")
    return value


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}: {error}") from error
