"""The building blocks of a page. All text is plain: the page escapes it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Notice:
    """A sentence that the reader must not miss."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Names with their values.

    >>> Facts({"rows": 20_000, "data": "mnist"}).shown
    {'rows': '20,000', 'data': 'mnist'}
    """

    items: Mapping[str, Cell | str | float]
    caption: str = ""

    @property
    def shown(self) -> dict[str, str]:
        """The values as text."""
        return {name: _cell(value).text for name, value in self.items.items()}


@dataclass(frozen=True)
class Cell:
    """A table's cell that is sorted by something other than its text.

    Args:
        text: what is shown.
        order: what it is sorted by, if not by its text; a number makes the column numeric.
        strong: stands out, e.g. as the best of its column.
    """

    text: str
    order: float | None = None
    strong: bool = False


Row = Sequence[Cell | str | float]


@dataclass(frozen=True)
class Table:
    """A table that the reader can sort.

    >>> table = Table("Sizes", ["set", "rows"], [["train", 20_000], ["test", 0.5]])
    >>> [cell.text for row in table.cells for cell in row]
    ['train', '20,000', 'test', '0.5']
    >>> table.numeric
    [False, True]
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""

    @cached_property  # the page asks for both once for each cell
    def cells(self) -> list[list[Cell]]:
        """Every cell as a `Cell`."""
        return [[_cell(item) for item in row] for row in self.rows]

    @cached_property
    def numeric(self) -> list[bool]:
        """For each column, whether it holds numbers."""
        return [
            all(cell.order is not None for cell in column)
            for column in zip(*self.cells, strict=True)
        ]


def _cell(item: Cell | str | float) -> Cell:
    if isinstance(item, Cell):
        return item
    if isinstance(item, str):
        return Cell(item)
    if math.isnan(item):
        return Cell("–", math.inf)
    return Cell(f"{item:,}" if isinstance(item, int) else f"{item:.4g}", item)


@dataclass(frozen=True)
class Panel:
    """One plot.

    Args:
        title: its heading.
        figure: a plotly figure; or several, by the name under which the reader chooses one. Colours
            of `bilevel.report.look` change with the page's theme; the background, the text and the
            grid always do.
        alt: a description for those who cannot see it.
    """

    title: str
    figure: Any
    alt: str

    @property
    def views(self) -> dict[str, Any]:
        """The figures by the name of the choice."""
        return dict(self.figure) if isinstance(self.figure, Mapping) else {"": self.figure}


@dataclass(frozen=True)
class Plots:
    """Plots side by side with a common legend.

    Args:
        panels: the plots. Traces of one `legendgroup` (or else of one name) belong together.
        caption: the text below.
        choice: the label of the reader's choice between figures, e.g. "Against".
    """

    panels: Sequence[Panel]
    caption: str = ""
    choice: str = ""


@dataclass(frozen=True)
class Image:
    """A picture, embedded in the page."""

    data: bytes
    alt: str
    caption: str = ""
    media_type: str = "image/png"

    @property
    def source(self) -> str:
        """The picture as a data URL."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"


@dataclass(frozen=True)
class Tile:
    """A small picture of a gallery.

    Args:
        image: the picture.
        lines: the text below.
        marked: framed, to stand out.
        sharp: its pixels are shown as squares instead of being blurred.
    """

    image: Image
    lines: Sequence[str] = ()
    marked: bool = False
    sharp: bool = False


@dataclass(frozen=True)
class Gallery:
    """Small pictures in named groups."""

    caption: str
    groups: Mapping[str, Sequence[Tile]]
    note: str = ""


@dataclass(frozen=True)
class Code:
    """Preformatted text, folded under a summary."""

    summary: str
    text: str


Block = str | Notice | Facts | Table | Plots | Image | Gallery | Code  # a str is a paragraph


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    heading: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """The name for links to it."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.heading.lower()).split())
