"""The lowest versions of the core's dependencies, as pip takes them: for `make lowest`."""

from __future__ import annotations

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))[
    "project"
]
print(*(each.replace(">=", "==") for each in project["dependencies"]))
