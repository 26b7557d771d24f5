"""The figures that can be reproduced: one file each, found by being in this folder.

A file `figure_7.py` with `FIGURE = Figure(...)` makes `bilevel reproduce figure-7` work.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from bilevel.errors import UserError, quoted

if TYPE_CHECKING:  # the command line needs the names alone
    from bilevel.lab.experiments.verdicts import Figure


def figure_names() -> list[str]:
    """Their names.

    Example:
        >>> figure_names()
        ['figure-2', 'figure-3', 'figure-4', 'figure-5', 'figure-6', 'successors']
    """
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def find_figure(name: str) -> Figure:
    """The figure of this name."""
    if name not in figure_names():
        names = ", ".join(figure_names())
        raise UserError(f"there is no figure {quoted(name)}: choose one of {names}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    figure: Figure = module.FIGURE
    return figure
