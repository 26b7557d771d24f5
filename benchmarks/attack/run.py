"""Attack the library and its commands: damaged files, odd arguments, kills, full disks.

    python benchmarks/attack/run.py [--tries 5000] [--only NAME] [--seed 0] [--kept FOLDER]

Every try must end in a right answer or in a refusal of one sentence: no stack trace, no wrong
result, no lost step. Writes docs/benchmarks/attack.md if all attacks ran; ends with exit code 1
if one of them got through. With --kept, attacks whose results are in the folder are not run again,
so that a run that was interrupted goes on; the seconds are those of all of them.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import torch  # noqa: E402
from rich.progress import track  # noqa: E402

from attack import attacks  # noqa: E402
from attack.tally import Tally  # noqa: E402
from bilevel.discovery import load_modules  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks" / "attack.md"
_COLUMNS = ("tries", "refused", "right", "tracebacks", "wrong", "lost", "cpu", "wall")


def attack(
    tries: int, seed: int = 0, only: str | None = None, kept: Path | None = None
) -> list[Tally]:
    """Spread the tries over the attacks by their shares."""
    chosen = [a for a in load_modules(attacks) if only in (None, a.NAME)]
    if not chosen:
        raise SystemExit(f"there is no attack {only!r}")
    whole, found, here = sum(a.SHARE for a in chosen), [], Path.cwd()
    for one in track(chosen, "attacks"):
        file = kept and kept.absolute() / f"{one.NAME}-{tries}-{seed}.json"
        if file and file.exists():
            found.append(Tally(**json.loads(file.read_text())))
            continue
        tally, chance = Tally(one.NAME), random.Random(f"{seed} {one.NAME}")
        wall, cpu = time.monotonic(), _cpu_seconds()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.chdir(folder)
            try:
                one.attack(tally, max(1, round(tries * one.SHARE / whole)), chance)
            finally:
                os.chdir(here)
        tally.wall, tally.cpu = time.monotonic() - wall, _cpu_seconds() - cpu
        found.append(tally)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(asdict(tally)))
        # Minutes may pass until the next one has ended.
        print(f"{tally.name}: {tally.bad} of {tally.tries} got through", file=sys.stderr)
    return found


def _cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def table(tallies: Sequence[Tally]) -> str:
    rows = [[t.name, *(f"{getattr(t, c):,.0f}" for c in _COLUMNS)] for t in tallies]
    sums = (f"{sum(getattr(t, c) for t in tallies):,.0f}" for c in _COLUMNS)
    heading = ["attack", "tries", "refused cleanly", "accepted and right", "tracebacks"]
    heading += ["wrong results", "lost steps", "CPU s", "wall s"]
    lines = [heading, ["---", *["---:"] * len(_COLUMNS)], *rows, ["all", *sums]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=5000)
    parser.add_argument("--only", metavar="NAME", help="one attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", metavar="FOLDER", type=Path, help="go on from what is there")
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    faulthandler.enable()  # a library that ends the process says where
    found = attack(asked.tries, asked.seed, asked.only, asked.kept)
    text = table(found)
    print(text)
    for tally in found:
        for example in tally.examples:
            print(f"{tally.name}: {example}", file=sys.stderr)
    if asked.only is None:
        PAGE.write_text(
            "# Attacks\n\n"
            f"Made by `python benchmarks/attack/run.py --tries {asked.tries} --seed {asked.seed}` "
            f"on {os.cpu_count()} cores of a Linux machine.\n"
            "Every try must end in a right answer or in a refusal of one sentence. "
            f"{sum(tally.bad for tally in found)} of them did not.\n\n"
            f"{text}\n",
            encoding="utf-8",
        )
    return 1 if any(tally.bad for tally in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
