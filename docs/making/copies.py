"""Pages that stand at the top of the repository, where people look for them, and in the site."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PLACES = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
}


def pages() -> dict[str, str]:
    """Their text, with links that hold from their place in the site."""
    return {place: _moved((ROOT / name).read_text("utf-8")) for name, place in _PLACES.items()}


def _moved(text: str) -> str:
    def linked(match: re.Match[str]) -> str:
        target = match[1]
        return f"]({_PLACES[target].removeprefix('project/') if target in _PLACES else target})"

    return re.sub(r"\]\(docs/", "](../", re.sub(r"\]\(([A-Z_]+\.md)\)", linked, text))
