"""The report of an experiment: its runs compared, on one page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.comparison.plots import comparison_plots
from bilevel.lab.comparison.tables import best, counts, endings, final_values
from bilevel.lab.quantities import ACCURACY, LOSS
from bilevel.lab.run_folder import Folder
from bilevel.report.blocks import Block, Cell, Code, Facts, Notice, Section, Table
from bilevel.report.page import Page

_LEFT_OUT = "Left out, because they are not finished: {}. The option --unfinished includes them."


def experiment_page(comparison: Comparison) -> Page:
    """Curves, tables, verdicts, configuration and versions."""
    experiment = comparison.experiment
    title = str(
        experiment.get("title") or experiment.get("name") or comparison.folders[0].path.name
    )
    sections = [
        Section("Curves", [*_unfinished(comparison), comparison_plots(comparison)]),
        Section("Results", [final_values(comparison), counts(comparison), endings(comparison)]),
        Section("What was run", _configuration(comparison)),
    ]
    verdicts = [block for folder in comparison.folders for block in _verdicts(folder)]
    if verdicts:
        sections.insert(0, Section("Verdicts", verdicts))
    return Page(title, _lead(comparison), sections)


def _lead(comparison: Comparison) -> str:
    labels = list(comparison.curves)
    seeds = sorted({len(group) for group in comparison.curves.values()})
    data = comparison.experiment.get("data")
    what = f"{len(labels)} algorithms" if len(labels) > 1 else labels[0]
    per = "one seed" if seeds == [1] else f"{'–'.join(str(n) for n in {seeds[0], seeds[-1]})} seeds"
    parts = [f"{what}{f' on {data}' if isinstance(data, str) else ''}, {per}"]
    if len(labels) > 1:
        parts[0] += " each"
        for metric in (LOSS, ACCURACY):
            if found := best(comparison, metric):
                end = "Lowest" if metric.better == "low" else "Highest"
                value = found[1].replace(" ", "\N{NO-BREAK SPACE}")
                parts.append(f"{end} final {metric.title.lower()}: {found[0]}, {value}")
    return ". ".join(parts) + "."


def _unfinished(comparison: Comparison) -> list[Block]:
    names = ", ".join(f"{curve.label} seed {curve.seed}" for curve in comparison.left_out)
    return [Notice(_LEFT_OUT.format(names))] if names else []


def _verdicts(folder: Folder) -> list[Block]:
    if folder.verdicts:
        columns = list(dict.fromkeys(key for row in folder.verdicts for key in row))
        rows = [
            [Cell(_text(row.get(key, "")), strong=key == "verdict") for key in columns]
            for row in folder.verdicts
        ]
        return [Table("Claims and what the runs say", [_spelt(key) for key in columns], rows)]
    return [part.strip() for part in folder.verdicts_text.split("\n\n") if part.strip()]


def _configuration(comparison: Comparison) -> list[Block]:
    experiment = comparison.experiment
    seeds = sorted({curve.seed for group in comparison.curves.values() for curve in group})
    facts = {
        "Data": _value(experiment.get("data", "–")),
        **{_spelt(key): _value(value) for key, value in experiment.get("problem", {}).items()},
        **{f"Budget, {key}": _value(value) for key, value in experiment.get("budget", {}).items()},
        "Seeds": _text(seeds),
    }
    blocks: list[Block] = [Facts(facts, "Problem and budget"), _settings(comparison)]
    for folder in comparison.folders:
        where = folder.path.resolve().name
        about = {key: _value(value) for key, value in folder.about.items()}
        blocks += [
            Facts(about, f"Versions and machine of {where}"),
            Code(f"{where}/experiment.toml", folder.toml),
        ]
    return blocks


def _settings(comparison: Comparison) -> Table:
    rows = []
    for label in comparison.curves:
        table = comparison.settings.get(label, {})
        rows.append([label, _text(table.get("name", "–")), _pairs(table.get("settings", {}))])
    return Table("Algorithms", ["Label", "Algorithm", "Settings"], rows)


def _spelt(key: str) -> str:
    return key.replace("_", " ").capitalize()


def _value(value: Any) -> str | float:
    """A number stays one; all else is text."""
    return value if type(value) in {int, float} else _text(value)


def _text(value: Any) -> str:
    """A value of the configuration on one line, much as TOML has it."""
    if isinstance(value, Mapping):
        return f"{{{_pairs(value)}}}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pairs(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {_text(part)}" for key, part in table.items())
