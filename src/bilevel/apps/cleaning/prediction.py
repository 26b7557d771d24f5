"""The job of `bilevel predict`: read, label, write."""

from __future__ import annotations

from pathlib import Path

from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.job import free, safe_cells
from bilevel.apps.cleaning.model import load, predict
from bilevel.apps.cleaning.writing import WRITTEN, write
from bilevel.durable.files import replacing
from bilevel.durable.folders import check_file
from bilevel.errors import UserError


def write_predictions(model: Path, table: Path, output: Path, force: bool) -> int:
    """The table with what is predicted as new columns; returns the number of rows."""
    if not output.name.endswith(WRITTEN):
        raise UserError(f"{output} should end in one of {', '.join(WRITTEN)}")
    check_file(output)
    if output.exists() and not force:
        raise UserError(f"{output} exists: choose another name, or use --force")
    learned, file = load(model), read(table)
    new = predict(learned, file.frame, str(table))
    whole = file.written.assign(**{free(name, file.written): v for name, v in new.items()})
    with replacing(output) as part:
        write(safe_cells(whole), part, file)
    return len(whole)
