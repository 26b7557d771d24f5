"""Packages that only data sets need."""

from __future__ import annotations

import importlib
from typing import Any


def extra(module: str) -> Any:
    """Import a module of the `data` extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'data sets need {module.partition(".")[0]}: pip install "bilevel[data]"'
        ) from error
