"""Measure the design claims into a file, seed by seed, and judge them by the rule of verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bilevel.durable.about import about, load
from bilevel.errors import UserError
from bilevel.lab.design.studies import STUDIES
from bilevel.lab.experiments.judges import log_ratio
from bilevel.lab.experiments.rule import ERROR, Gain
from bilevel.lab.experiments.verdicts import Finding, Row
from bilevel.lab.notify import Notify, silent
from bilevel.lab.plain_files import read_json, write_json

SEEDS = range(11, 41)  # 0 was looked at while the studies were written, 1 to 10 were judged before
FILE = "design.json"
Raw = Mapping[str, Any]


def measure(folder: Path, command: str, notify: Notify = silent) -> Raw:
    """What the folder's file lacks is measured; after each seed all of it is written."""
    file = folder / FILE
    raw: dict[str, Any] = read_json(file, dict)
    how = {study.name: study.how for study in STUDIES}
    if raw and raw.get("how") != how:
        raise UserError(f"{file} has other studies than these: delete it, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    raw = raw or {
        "about": about(command),
        "how": how,
        "studies": {study.name: {} for study in STUDIES},
    }
    total = len(STUDIES) * len(SEEDS)
    for number, (seed, study) in enumerate((seed, study) for seed in SEEDS for study in STUDIES):
        notify(f"{study.name}, seed {seed}", number, total)
        own = raw["studies"][study.name]
        if str(seed) not in own:
            own[str(seed)] = study.measure(seed)
            write_json(file, raw)
    raw["about"]["load_after"] = load()
    write_json(file, raw)
    notify("done", total, total)
    return read_json(file, dict)


def judge(raw: Raw) -> list[Row]:
    """A row for each claim."""
    rows, error = [], ERROR / len(STUDIES)
    for study in STUDIES:
        seeds = list(raw["studies"][study.name].values())
        finding = Finding(tuple(gains_of(seeds)), study.how)
        rows.append(Row.of(study.claim, study.name, finding, error, len(seeds)))
    return rows


def gains_of(seeds: Sequence[Mapping[str, Any]]) -> list[Gain]:
    """The comparisons of a study, from what its seeds measured."""
    names = list(seeds[0]) if seeds else []
    return [Gain(name, tuple(log_ratio(*seed[name]) for seed in seeds), "ratio") for name in names]
