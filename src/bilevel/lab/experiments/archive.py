"""What a figure's runs measured, in one small file from which everything shown is made."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilevel.durable.files import replacing
from bilevel.errors import refusing
from bilevel.lab.curves import Curve, Curves, Vector
from bilevel.lab.experiments.experiment import Experiment
from bilevel.lab.experiments.verdicts import Evidence
from bilevel.lab.run_folder import Folder

Packed = dict[str, Any]  # by experiment
_DIGITS = 6


def pack(experiments: Sequence[Experiment], folder: Path) -> Packed:
    """The curves of some run folders with their settings and where they come from."""
    return {each.name: _packed(each, Folder(folder / each.name)) for each in experiments}


def _packed(experiment: Experiment, results: Folder) -> dict[str, Any]:
    curves = results.begun(experiment)
    last = max(curve.last("seconds") for seeds in curves.values() for curve in seeds)
    return {
        "about": results.about,
        "settings": results.toml,
        # Where the steps came first, nothing was measured between the longest run and the limit.
        "seconds": min(experiment.budget.seconds or math.inf, _number(last) or 0.0),
        "curves": {label: [_plain(curve) for curve in seeds] for label, seeds in curves.items()},
    }


def _plain(curve: Curve) -> dict[str, Any]:
    columns = {name: [_number(value) for value in c] for name, c in curve.columns.items()}
    return {"seed": curve.seed, "status": curve.status, "columns": columns}


def _number(value: float) -> float | None:
    """JSON has no NaN: what was not measured, or was not finite, is null."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def write(file: Path, packed: Packed) -> None:
    """Compressed, and the same bytes for the same content."""
    text = json.dumps(packed, ensure_ascii=False, sort_keys=True).encode()
    with replacing(file) as part:
        part.write_bytes(gzip.compress(text, mtime=0))


def read(file: Path) -> Packed:
    advice = "; take it from the repository again"
    with refusing(f"{file} cannot be read", OSError, EOFError, ValueError, advice=advice):
        packed: Packed = json.loads(gzip.decompress(file.read_bytes()))
    return packed


def evidence(packed: Packed) -> dict[str, Evidence]:
    """The curves as judges read them: only what was measured in time."""
    return {
        name: Evidence.within(_curves(part["curves"]), part["seconds"])
        for name, part in packed.items()
    }


def _curves(stored: dict[str, list[dict[str, Any]]]) -> Curves:
    return {
        label: [Curve(label, run["seed"], _columns(run["columns"]), run["status"]) for run in runs]
        for label, runs in stored.items()
    }


def _columns(stored: dict[str, list[float | None]]) -> dict[str, Vector]:
    return {
        name: np.array([math.nan if value is None else value for value in values], float)
        for name, values in stored.items()
    }
