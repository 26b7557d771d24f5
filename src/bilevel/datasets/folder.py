"""Where data sets lie."""

from __future__ import annotations

import os
from pathlib import Path

from bilevel.datasets.extras import extra


def data_folder() -> Path:
    """The folder that `BILEVEL_DATA` names, else the user's cache; each data set has its own in it.

    Example:
        >>> from bilevel.datasets import data_folder
        >>> data_folder().is_absolute()
        True
    """
    named = os.environ.get("BILEVEL_DATA")
    folder = Path(named).expanduser() if named else Path(extra("pooch").os_cache("bilevel"))
    return folder.absolute()
