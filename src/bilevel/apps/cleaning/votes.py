"""The columns of a table in which several people have labelled its rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.files import File
from bilevel.apps.cleaning.trusted import as_text, column_of


def with_majority(file: File, names: tuple[str, ...], label: str) -> File:
    """The table with the commonest vote of each row as one more column, the first of equals."""
    votes = pd.concat([as_text(column_of(file, name)) for name in names], axis=1)
    votes = votes.where(votes.notna() & (votes != ""), None)

    def commonest(row: pd.Series) -> str | None:
        known = [vote for vote in row if vote is not None]
        return max(known, key=known.count) if known else None

    most = votes.apply(commonest, axis=1)
    frame, written = (part.assign(**{label: most}) for part in (file.frame, file.written))
    return replace(file, frame=frame, written=written.assign(**{label: most.fillna("")}))


def votes_of(file: File, names: tuple[str, ...], rows: int) -> pd.DataFrame:
    """What each annotator said of each row, as text; rows beyond the table have no votes."""
    columns = [as_text(column_of(file, name)).reset_index(drop=True) for name in names]
    votes = pd.concat(columns, axis=1).reindex(range(rows))
    return votes.where(votes.notna() & (votes != ""), np.nan)
