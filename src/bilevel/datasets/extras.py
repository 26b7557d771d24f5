"""What data sets need of the machine: packages that nothing else needs, and a folder."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any


def extra(module: str) -> Any:
    """Import a module of the `data` extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'data sets need {module.partition(".")[0]}: pip install "bilevel[data]"'
        ) from error


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
