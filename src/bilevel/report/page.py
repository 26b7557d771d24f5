"""The frame of every HTML report: one template, one stylesheet, one script, no network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import bilevel
from bilevel.durable.files import write_text
from bilevel.report import palette
from bilevel.report.blocks import Plots, Section


@dataclass(frozen=True)
class Page:
    """A document of sections, to be rendered as one self-contained HTML file.

    plotly.js is in it once if there are plots. A content security policy lets the browser run
    the page's own scripts and nothing else, and load nothing from anywhere.

    Args:
        title: of the document.
        lead: its first paragraph: what it found.
        sections: with their headings.

    >>> page = Page("A < B", "What was found.", [Section("Why", ["Because."])])
    >>> "<h1>A &lt; B</h1>" in page.html()
    True
    """

    title: str
    lead: str
    sections: Sequence[Section]

    def html(self) -> str:
        """The page's text."""
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup

        scripts = [_asset("page.js")]
        if any(isinstance(block, Plots) for section in self.sections for block in section.blocks):
            from plotly.offline import get_plotlyjs

            scripts.insert(0, get_plotlyjs())
        environment = Environment(
            loader=PackageLoader("bilevel.report", "."),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return environment.get_template("page.html").render(
            page=self,
            kind=lambda block: type(block).__name__,
            plot_data=lambda plots: Markup(_plot_data(plots)),
            colours=Markup(inert_json(_colours())),
            themes={"light": palette.LIGHT_THEME, "dark": palette.DARK_THEME},
            style=Markup(_asset("page.css")),
            scripts=[Markup(script) for script in scripts],
            script_sources=" ".join(source_hash(script) for script in scripts),
            version=bilevel.__version__,
        )

    def write(self, file: Path) -> None:
        """Write the page, completely or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        text = self.html()
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)


def _asset(name: str) -> str:
    return resources.files("bilevel.report").joinpath(name).read_text(encoding="utf-8")


def source_hash(script: str) -> str:
    """A script's name in a content security policy."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _colours() -> dict[str, Any]:
    return {
        "themes": {"light": palette.LIGHT_THEME, "dark": palette.DARK_THEME},
        "colourway": palette.colourway(),
        "dark": palette.dark_colours(),
    }


def _plot_data(plots: Plots) -> str:
    from plotly.utils import PlotlyJSONEncoder

    panels = []
    for panel in plots.panels:
        views = {name: figure.to_plotly_json() for name, figure in panel.views.items()}
        for view in views.values():
            view["layout"].pop("template", None)  # the page has its own theme
        panels.append(views)
    return inert_json(panels, PlotlyJSONEncoder)


def inert_json(value: Any, encoder: type[json.JSONEncoder] = json.JSONEncoder) -> str:
    """JSON that cannot close the script element around it."""
    text = json.dumps(value, cls=encoder, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
