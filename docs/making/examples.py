"""How mkdocstrings reads our docstrings, which are plain text and not Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Prepare a docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = prepared(obj.docstring.value)


def prepared(text: str) -> str:
    """With "Examples:" for "Example:", and stars as in y* that Markdown takes for no emphasis.

    >>> prepared("y* minimises g.\\n\\n    Φ(x) = f(x, y*(x))\\n\\nExample:\\n    >>> 2")
    'y\\\\* minimises g.\\n\\n    Φ(x) = f(x, y*(x))\\n\\nExamples:\\n    >>> 2'
    """
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
    shown, is_section = [], False
    for line in text.split("\n"):
        if line and not line.startswith(" "):
            is_section = re.fullmatch(r"(Args|Returns|Raises):", line) is not None
        # Indented lines outside of the sections that list arguments are formulas and programs.
        if is_section or not line.startswith("    "):
            line = re.sub(r"(?<=\b[A-Za-zΦ])\*(?![*\w])", r"\\*", line)
        shown.append(line)
    return "\n".join(shown)
