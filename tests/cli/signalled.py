"""`bilevel` commands in processes of their own, to which signals are sent."""

from __future__ import annotations

from pathlib import Path

from ..truth import forked

# The few small images of `few_shot_pictures` stand for those of FC100. Experiments save often: on a
# fast machine these small ones would be over before the first checkpoint.
_COMMAND = """
import dataclasses
from bilevel.cli.main import main
from bilevel.datasets import fc100 as module
from bilevel.lab.experiments import runner

runner._SAVE_SECONDS = 0.02

classes = {"train": 5, "validation": 4, "test": 4}
module.fc100 = dataclasses.replace(
    module.fc100, classes=classes, shape=(16, 16, 3), fewest_a_class=10
)
main()
"""


def begin(folder: Path, *arguments: str) -> forked.Program:
    """The command, as if typed in the folder."""
    data = str(folder / "data")
    return forked.begin(folder, "-c", _COMMAND, *arguments, COLUMNS="120", BILEVEL_DATA=data)
