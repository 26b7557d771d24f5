"""Whole commands with a limit on the size of files, as on a full disk."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd

from attack.commands import judge, start
from attack.tally import Tally, expect
from bilevel.errors import UserError

NAME, SHARE = "full disks", 8
_RESULTS = {"labels.csv", "model.npz", "report.html", "review.html"}
_LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv = ["bilevel", *sys.argv[2:]]
from bilevel.cli.main import main
main()
"""


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    frame = pd.DataFrame({"width": [float(i % 3) for i in range(60)], "label": list("abc") * 20})
    frame.to_csv("train.csv", index=False)
    for i in range(tries):
        size = 2 ** chance.randrange(0, 24)
        tally.attempt(f"{size} bytes", lambda i=i, size=size: _clean(f"out-{i}", size))


def _clean(output: str, size: int) -> None:
    words = ("train.csv", "--label", "label", "--output", output)
    process = start("-c", _LIMITED, str(size), "clean", *words)
    try:
        judge(process)
    except UserError:
        expect(not Path(output).exists(), "a refused run left results")
        expect(not list(Path().glob(".bilevel-*")), "a refused run left a draft")
        raise
    expect({file.name for file in Path(output).iterdir()} == _RESULTS, "results are missing")
