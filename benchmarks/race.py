"""The race: bilevel against its peers, plain torch, JAX and the floor, in one run.

    BILEVEL_DATA=... python benchmarks/race.py [--contest R1 --contest R3] [--repeats 5] [--quick]

Every contestant computes the same from the same start, in a process of its own; they take turns.
Beside each time is the relative error of its answer against closed forms in float64: a wrong
answer is disqualified. Preparation (data, imports, compilation) is shown apart. Needs
`pip install -e ".[race]"`; a contestant that is not installed is skipped with a line. Few-shot
learning (R4) is benchmarks/few_shot.py; cleanlab, which computes no hypergradient, is raced for
its job in benchmarks/cleaning.py.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
from dataclasses import replace
from pathlib import Path

from race.contest import Contest
from race.contests import CONTESTS
from race.measuring import Score, race
from race.plot import plot
from race.table import table

PACKAGES = ("torch", "numpy", "scipy", "jax", "jaxopt", "torchopt", "betty-ml", "higher")


def versions() -> str:
    found = []
    for package in (*PACKAGES, "hypergrad"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [contest.name for contest in CONTESTS]
    parser.add_argument("--contest", action="append", choices=names, help="by default all")
    parser.add_argument("--without", action="append", default=[], help="a contestant's name")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, 2 repeats")
    parser.add_argument("-o", "--output", type=Path, default=Path("out/race/race.md"))
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)  # or it fails before the work
    repeats = 2 if options.quick else options.repeats
    results, parts = [], []
    for contest in CONTESTS:
        if contest.name not in (options.contest or names):
            continue
        before = load()
        contest = replace(
            contest,
            contestants=tuple(c for c in contest.contestants if c.name not in options.without),
        )
        rounds = min(repeats, contest.most_repeats)
        scores = race(contest, contest.case(options.quick), rounds, options.threads)
        _mention(scores)
        parts.append(
            f"{table(contest, scores)} {rounds} repeats. Load {before} before, {load()} after."
        )
        print(f"{parts[-1]}\n", flush=True)
        results.append((contest, scores))
        write(options, repeats, results, parts)  # also what a run that is stopped has found
    print(f"{options.output}\n{options.output.with_suffix('.png')}")


def write(
    options: argparse.Namespace,
    repeats: int,
    results: list[tuple[Contest, list[Score]]],
    parts: list[str],
) -> None:
    """The table and the plot."""
    picture = options.output.with_suffix(".png")
    plot(results, picture)
    head = (
        f"# The race\n\nMade by `python benchmarks/race.py --repeats {repeats}"
        f"{' --quick' * options.quick}` with {options.threads} threads; seconds an outer step. "
        "Ratios of one run mean something, seconds do not.\n\n"
        f"{platform.machine()}, Python {platform.python_version()}; {versions()}.\n\n"
        f"![ratios]({picture.name})\n\n"
    )
    options.output.write_text(head + "\n\n".join(parts) + "\n", encoding="utf-8")


def _mention(scores: list[Score]) -> None:
    for score in scores:
        if score.excuse:
            print(f"{score.contestant.name}: {score.excuse}", flush=True)


if __name__ == "__main__":
    main()
