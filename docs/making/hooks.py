"""What MkDocs asks while it builds the site: pages made on the spot, the navigation, formulas.

The pages of the API, of the command line and of the gallery are made here, from the code and from
what the gallery's scripts showed, and never stand in the repository.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import commands
import copies
import gallery
import reference
import side_by_side
import walk

_MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and let the navigation find all of them."""
    for maker in (copies, reference, commands, gallery, side_by_side, walk):
        for path, content in maker.pages().items():
            old = files.get_file_from_path(path)
            if old is not None:
                files.remove(old)
            files.append(File.generated(config, path, content=content))
    pages = [file.src_uri for file in files.documentation_pages()]
    config.nav = spread(config.nav, pages)
    return files


def spread(nav: Any, pages: list[str]) -> Any:
    """The navigation with each line that ends with * replaced by the pages it stands for."""
    named = set(_names(nav))
    return _spread(nav, [page for page in sorted(pages) if page not in named])


def _names(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for item in nav if isinstance(nav, list) else ():
        yield from _names(next(iter(item.values())) if isinstance(item, dict) else item)


def _spread(nav: list[Any], rest: list[str]) -> list[Any]:
    found: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            ((title, below),) = item.items()
            below = _spread(below, rest) if isinstance(below, list) else below
            found += [{title: below}] if below else []
        elif item.endswith("*"):
            depth = item.count("/")
            found += [p for p in rest if fnmatch(p, item) and p.count("/") == depth]
        else:
            found.append(item)
    return found


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """TeX becomes MathML here, so that the reader's browser needs no program for it."""

    def drawn(match: re.Match[str]) -> str:
        display = "block" if match[1] == "div" else "inline"
        return convert(html.unescape(match[2]), display=display)

    return _MATH.sub(drawn, content)
