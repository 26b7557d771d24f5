"""What a measurement leaves behind: the page, the figures, the tables and all raw counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bilevel.durable.about import about
from bilevel.durable.files import replacing, write_text
from bilevel.lab.complexity.figures import write_figure
from bilevel.lab.complexity.fits import Trials
from bilevel.lab.complexity.page import write_page
from bilevel.lab.complexity.studies import Study
from bilevel.lab.complexity.tables import as_markdown, lines


def write_results(
    folder: Path, studies: Sequence[Study], found: Mapping[str, Trials], command: str
) -> None:
    """report.html, STUDY.png, tables.md and counts.json."""
    write_page(folder / "report.html", studies, found, command)
    tables = [as_markdown(study, lines(study, found[study.name])) for study in studies]
    write_text(folder / "tables.md", "\n".join(tables))
    counts = {"about": about(command), "cells": list(map(_cells, found, found.values()))}
    write_text(folder / "counts.json", json.dumps(counts, indent=1, ensure_ascii=False))
    for study in studies:
        with replacing(folder / f"{study.name}.png") as part:
            write_figure(part, study, found[study.name])


def _cells(study: str, trials: Trials) -> dict[str, Any]:
    cells = [
        {"method": name, "kappa": kappa, "seed": seed, "trials": [asdict(t) for t in runs]}
        for (name, kappa, seed), runs in trials.items()
    ]
    return {"study": study, "cells": cells}
