"""The frame of every report: what a browser gets to see, and how it is kept harmless."""

import base64
import hashlib
import itertools
import re

import numpy as np
import plotly.graph_objects as go
import pytest

from bilevel.report import (
    Cell,
    Code,
    Facts,
    Gallery,
    Image,
    Notice,
    Page,
    Panel,
    Plots,
    Section,
    Table,
    Tile,
    look,
)
from bilevel.report.palette import DARK_THEME, LIGHT_THEME, colourway, dark_colours

HOSTILE = "</script><script>alert('x')</script>\"'&"


def page_of(*blocks, title="Title"):
    return Page(title, "Lead.", [Section("Only section", blocks)])


def plots(name="curve"):
    figure = go.Figure([go.Scatter(x=[0, 1], y=[1, 0], name=name)])
    return Plots([Panel("Panel", figure, "A falling line")], "Caption")


def test_every_kind_of_block_is_rendered():
    html = page_of(
        "A paragraph.",
        Notice("Take care."),
        Facts({"rows": 20000}, "Size"),
        Table("Rows", ["name", "n"], [["a", 1], ["b", Cell("two", 2, strong=True)]], "A note."),
        plots(),
        Image(b"png", "a picture", "Its caption"),
        Gallery("Some", {"one": [Tile(Image(b"small", "a tile"), ["its line"], True)], "none": []}),
        Code("file.toml", "x = 1 < 2"),
    ).html()
    for text in (
        "<h1>Title</h1>",
        "<h2>Only section</h2>",
        "<p>A paragraph.</p>",
        "Take care.",
        "<dt>rows</dt><dd>20,000</dd>",
        "<caption>Rows</caption>",
        '<td class="number strong" data-order="2">two</td>',
        "A note.",
        'aria-label="A falling line"',
        f'<img src="data:image/png;base64,{base64.b64encode(b"png").decode()}" alt="a picture">',
        '<div class="tile marked">',
        base64.b64encode(b"small").decode(),
        "<span>its line</span>",
        "<code>x = 1 &lt; 2</code>",
    ):
        assert text in html


def test_hostile_text_is_shown_and_never_run():
    view = {HOSTILE: go.Figure([go.Scatter(x=[0], y=[1], name=HOSTILE)])}
    html = Page(
        HOSTILE,
        HOSTILE,
        [
            Section(
                HOSTILE,
                [
                    HOSTILE,
                    Notice(HOSTILE),
                    Facts({HOSTILE: HOSTILE}, HOSTILE),
                    Table(HOSTILE, [HOSTILE], [[HOSTILE]], HOSTILE),
                    Plots([Panel(HOSTILE, view, HOSTILE)], HOSTILE, HOSTILE),
                    Image(b"", HOSTILE, HOSTILE),
                    Gallery(HOSTILE, {HOSTILE: [Tile(Image(b"", HOSTILE), [HOSTILE])]}, HOSTILE),
                    Code(HOSTILE, HOSTILE),
                ],
            )
        ],
    ).html()
    assert "<script>alert" not in html
    assert html.count("&lt;/script&gt;&lt;script&gt;alert(&#39;x&#39;)") > 10
    ours = re.findall(r"<script[^>]*>", html)
    assert ours.count("<script>") == 2  # plotly.js and the page's own
    assert len(ours) == 4  # and the data of the plot and of the colours


def test_the_policy_lets_run_only_the_scripts_of_the_page_and_loads_nothing():
    html = page_of(plots()).html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy


def test_nothing_is_loaded_from_elsewhere():
    html = page_of(plots(), Image(b"", "x")).html()
    markup = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:|#)', markup)
    assert "url(" not in markup
    assert "@import" not in markup


def test_plotly_is_in_the_page_once_and_only_if_needed():
    licence = "Copyright 2012-"
    assert page_of("text").html().count(licence) == 0
    assert page_of(plots(), plots()).html().count(licence) == page_of(plots()).html().count(licence)
    assert page_of(plots()).html().count(licence) >= 1


def test_the_cells_of_a_table_are_made_once_however_often_the_page_asks() -> None:
    table = Table("Rows", ["name", "n"], [["a", 1], ["b", 2]])
    assert table.cells is table.cells
    assert table.numeric is table.numeric


def test_an_empty_table_is_rendered():
    assert "<caption>Nothing</caption>" in page_of(Table("Nothing", ["a", "b"], [])).html()


def test_a_page_is_written_into_a_new_folder_without_leftovers(tmp_path):
    page_of("text").write(tmp_path / "new" / "page.html")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["page.html"]


def test_a_page_that_cannot_be_written_is_an_error_that_leaves_nothing(tmp_path):
    (tmp_path / "page.html").mkdir()
    with pytest.raises(OSError, match=r"page\.html"):
        page_of("text").write(tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_sections_have_anchors():
    assert Section("Why? Because: 2 < 3", []).anchor == "why-because-2-3"


# The palette


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one, two):
    """As WCAG 2 defines it."""
    dark, light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, two))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb):
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    v = np.array(to_xyz) @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(v > 0.008856, np.cbrt(v), 7.787 * v + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


SIGHT = {  # Machado, Oliveira & Fernandes, 2009, severity 1
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_stand_out_from_the_ground_and_from_each_other(theme):
    ground = {"light": LIGHT_THEME, "dark": DARK_THEME}[theme]
    colours = [colour if theme == "light" else dark_colours()[colour] for colour in colourway()]
    assert min(contrast(colour, ground["paper"]) for colour in colours) >= 3
    for text in ("ink", "muted", "accent"):
        assert contrast(ground[text], ground["paper"]) >= 4.5
    assert contrast(ground["warning"], ground["warning-paper"]) >= 4.5
    for matrix in [np.eye(3), *map(np.array, SIGHT.values())]:
        seen = [lab(matrix @ linear(colour)) for colour in colours]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 12


def test_the_first_28_looks_differ_even_without_markers():
    assert len({(look(i).colour, look(i).dash) for i in range(28)}) == 28
    assert len({look(i).marker for i in range(7)}) == 7
