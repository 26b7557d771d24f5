"""HTML pages: the frame and the building blocks of every report.

A report is a `Page` of sections of blocks. `Page.html` renders it by one template, with one
stylesheet and one script, into one file that needs no network.
"""

from bilevel.report.blocks import (
    Block,
    Cell,
    Code,
    Facts,
    Gallery,
    Image,
    Notice,
    Panel,
    Plots,
    Section,
    Table,
    Tile,
)
from bilevel.report.page import Page
from bilevel.report.palette import look

__all__ = [
    "Block",
    "Cell",
    "Code",
    "Facts",
    "Gallery",
    "Image",
    "Notice",
    "Page",
    "Panel",
    "Plots",
    "Section",
    "Table",
    "Tile",
    "look",
]
