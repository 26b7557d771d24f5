"""What data sets need: optional packages, and a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bilevel.discovery import import_extra


def extra(module: str) -> Any:
    """A module of the `data` extra; if it is missing, the error says how to install it."""
    return import_extra(module, f"data sets need {module.partition('.')[0]}", "data")


def data_folder() -> Path:
    """`BILEVEL_DATA`, or else the user's cache; each data set has a subfolder.

    Example:
        >>> from bilevel.datasets import data_folder
        >>> data_folder().is_absolute()
        True
    """
    named = os.environ.get("BILEVEL_DATA")
    folder = Path(named).expanduser() if named else Path(extra("pooch").os_cache("bilevel"))
    return folder.absolute()
