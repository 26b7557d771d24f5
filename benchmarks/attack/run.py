"""Attack the library and its commands: damaged files, odd arguments, kills, full disks.

    python benchmarks/attack/run.py [--tries 5000] [--only NAME] [--seed 0]

Every try must end in a right answer or in a refusal of one sentence: no stack trace, no wrong
result, no lost step. Writes docs/benchmarks/attack.md if all attacks ran; ends with exit code 1
if one of them got through.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import torch  # noqa: E402
from rich.progress import track  # noqa: E402

from attack import attacks  # noqa: E402
from attack.tally import Tally  # noqa: E402
from bilevel.discovery import load_modules  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks" / "attack.md"
_COLUMNS = ("tries", "refused", "right", "tracebacks", "wrong", "lost")


def attack(tries: int, seed: int = 0, only: str | None = None) -> list[Tally]:
    """Spread the tries over the attacks by their shares."""
    chosen = [a for a in load_modules(attacks) if only in (None, a.NAME)]
    if not chosen:
        raise SystemExit(f"there is no attack {only!r}")
    whole, found, here = sum(a.SHARE for a in chosen), [], Path.cwd()
    for one in track(chosen, "attacks"):
        tally, chance = Tally(one.NAME), random.Random(f"{seed} {one.NAME}")
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.chdir(folder)
            try:
                one.attack(tally, max(1, round(tries * one.SHARE / whole)), chance)
            finally:
                os.chdir(here)
        found.append(tally)
    return found


def table(tallies: Sequence[Tally]) -> str:
    rows = [[t.name, *(f"{getattr(t, c):,}" for c in _COLUMNS)] for t in tallies]
    sums = (f"{sum(getattr(t, c) for t in tallies):,}" for c in _COLUMNS)
    heading = ["attack", "tries", "refused cleanly", "accepted and right", "tracebacks"]
    heading += ["wrong results", "lost steps"]
    lines = [heading, ["---", *["---:"] * len(_COLUMNS)], *rows, ["all", *sums]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=5000)
    parser.add_argument("--only", metavar="NAME", help="one attack")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    started = time.monotonic()
    found = attack(asked.tries, asked.seed, asked.only)
    minutes = (time.monotonic() - started) / 60
    text = table(found)
    print(text)
    for tally in found:
        for example in tally.examples:
            print(f"{tally.name}: {example}", file=sys.stderr)
    if asked.only is None:
        PAGE.write_text(
            "# Attacks\n\n"
            f"Made by `python benchmarks/attack/run.py --tries {asked.tries} --seed {asked.seed}`, "
            f"{minutes:.0f} minutes on {os.cpu_count()} shared cores of a Linux machine.\n"
            "Every try must end in a right answer or in a refusal of one sentence.\n\n"
            f"{text}\n",
            encoding="utf-8",
        )
    return 1 if any(tally.bad for tally in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
