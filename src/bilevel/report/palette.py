"""The colours of pages and figures: distinct for colour-blind eyes, legible on white and on dark.

Colour is never the only cue: each look has its own dash and marker, too.
"""

from __future__ import annotations

from dataclasses import dataclass

LIGHT_THEME = {
    "paper": "#ffffff",
    "panel": "#f6f7f9",
    "ink": "#1b1f24",
    "muted": "#59626e",
    "rule": "#dce0e6",
    "accent": "#1f5aa6",
    "warning": "#8a4b00",
    "warning-paper": "#fff6e5",
}
DARK_THEME = {
    "paper": "#14171c",
    "panel": "#1c2027",
    "ink": "#e8eaed",
    "muted": "#a2abb7",
    "rule": "#343a44",
    "accent": "#84b6f4",
    "warning": "#f4c98a",
    "warning-paper": "#2e2517",
}

# (on white, on dark): blue, vermilion, green, wine, amber, ink, sky
_COLOURS = (
    ("#1f5aa6", "#4b8fe2"),
    ("#c2470c", "#e0702a"),
    ("#3e8e5a", "#35d08c"),
    ("#86235e", "#c670a0"),
    ("#c68407", "#f4cb4c"),
    ("#1e2226", "#fbfae8"),
    ("#3598d4", "#afd1fe"),
)
_DASHES = ("solid", "dash", "dot", "dashdot")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
_BAND_OPACITY = 0.16


@dataclass(frozen=True)
class Look:
    """How one curve is drawn, in plotly's names.

    Args:
        colour: on white.
        dark_colour: the same on a dark background; pages switch to it by themselves.
        dash: of the line.
        marker: its symbol.
    """

    colour: str
    dark_colour: str
    dash: str
    marker: str

    @property
    def band(self) -> str:
        """The colour of the spread around the curve."""
        return _translucent(self.colour)


def look(index: int) -> Look:
    """The look of the curve with this number; the first 28 all differ.

    >>> look(0).colour, look(0).dash, look(1).dash
    ('#1f5aa6', 'solid', 'dash')
    """
    colour, dark_colour = _COLOURS[index % len(_COLOURS)]
    turn = index // len(_COLOURS)
    return Look(
        colour,
        dark_colour,
        _DASHES[(index % len(_COLOURS) + turn) % len(_DASHES)],
        _MARKERS[(index + turn) % len(_MARKERS)],
    )


def colourway() -> list[str]:
    """The colours on white, in order."""
    return [colour for colour, _ in _COLOURS]


def dark_colours() -> dict[str, str]:
    """The replacement of each colour on a dark background."""
    return {form(colour): form(dark) for colour, dark in _COLOURS for form in (str, _translucent)}


def _translucent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{_BAND_OPACITY})"
