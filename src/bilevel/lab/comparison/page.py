"""The report of an experiment: its runs compared, on one page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.comparison.panels import comparison_plots
from bilevel.lab.comparison.quantities import METRICS
from bilevel.lab.comparison.runs import Run
from bilevel.lab.comparison.summary import best, counts, endings, final_values
from bilevel.report.blocks import Block, Cell, Code, Facts, Notice, Section, Table
from bilevel.report.page import Page


def experiment_page(comparison: Comparison) -> Page:
    """Curves, tables, verdicts, configuration and versions."""
    experiment = comparison.experiment
    title = str(experiment.get("title") or experiment.get("name") or comparison.runs[0].folder.name)
    sections = [
        Section("Curves", [*_unfinished(comparison), comparison_plots(comparison)]),
        Section("Results", [final_values(comparison), counts(comparison), endings(comparison)]),
        Section("What was run", _configuration(comparison)),
    ]
    verdicts = [block for run in comparison.runs for block in _verdicts(run)]
    if verdicts:
        sections.insert(0, Section("Verdicts", verdicts))
    return Page(title, _lead(comparison), sections)


def _lead(comparison: Comparison) -> str:
    labels = list(comparison.trials)
    seeds = sorted({len(group) for group in comparison.trials.values()})
    data = comparison.experiment.get("data")
    what = f"{len(labels)} algorithms" if len(labels) > 1 else labels[0]
    per = "one seed" if seeds == [1] else f"{'–'.join(str(n) for n in {seeds[0], seeds[-1]})} seeds"
    parts = [f"{what}{f' on {data}' if isinstance(data, str) else ''}, {per}"]
    if len(labels) > 1:
        parts[0] += " each"
        for column in ("validation_loss", "test_accuracy"):
            metric = next(metric for metric in METRICS if metric.column == column)
            found = best(comparison, metric)
            if found:
                end = "Lowest" if metric.better == "low" else "Highest"
                value = found[1].replace(" ", "\N{NO-BREAK SPACE}")
                parts.append(f"{end} final {metric.title.lower()}: {found[0]}, {value}")
    return ". ".join(parts) + "."


def _unfinished(comparison: Comparison) -> list[Block]:
    names = [f"{trial.label} seed {trial.seed}" for trial in comparison.left_out]
    if not names:
        return []
    return [
        Notice(
            f"Left out, because still running or broken off: {', '.join(names)}. "
            "The option --unfinished draws them, too."
        )
    ]


def _verdicts(run: Run) -> list[Block]:
    if run.verdicts:
        columns = list(dict.fromkeys(key for row in run.verdicts for key in row))
        rows = [
            [Cell(_text(row.get(key, "")), strong=key == "verdict") for key in columns]
            for row in run.verdicts
        ]
        titles = [_spelt(key) for key in columns]
        return [Table("Claims and what the runs say", titles, rows)]
    return [part.strip() for part in run.verdicts_text.split("\n\n") if part.strip()]


def _configuration(comparison: Comparison) -> list[Block]:
    experiment = comparison.experiment
    seeds = sorted({trial.seed for group in comparison.trials.values() for trial in group})
    facts = {
        "Data": _value(experiment.get("data", "–")),
        **{_spelt(key): _value(value) for key, value in experiment.get("problem", {}).items()},
        **{f"Budget, {key}": _value(value) for key, value in experiment.get("budget", {}).items()},
        "Seeds": _text(seeds),
    }
    blocks: list[Block] = [Facts(facts, "Problem and budget"), _settings(comparison)]
    for run in comparison.runs:
        where = run.folder.resolve().name
        about = {key: _value(value) for key, value in run.about.items()}
        blocks += [
            Facts(about, f"Versions and machine of {where}"),
            Code(f"{where}/experiment.toml", run.toml),
        ]
    return blocks


def _settings(comparison: Comparison) -> Table:
    rows = []
    for label in comparison.trials:
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
