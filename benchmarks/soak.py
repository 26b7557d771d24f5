"""Long runs, watched for what they hold on to: memory, Python objects, open files. Needs Linux.

    python benchmarks/soak.py [NAME ...] [--steps 1000]

Runs every algorithm on losses without data, on rows with checkpoints, and on few-shot tasks: two
or three minutes. Each line compares the last quarter of a run with its second. The history, which
is kept by design, is not counted as growth; its size a step stands in the last column. Ends with
exit code 1 if something grows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from soak.cases import soak
from soak.table import heading, line


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("algorithms", nargs="*", metavar="NAME", help="all, if none is given")
    parser.add_argument("--steps", type=int, default=1000, help="outer steps of each run")
    asked = parser.parse_args(words)
    torch.set_num_threads(1)  # the problems are small
    print(heading())
    findings = []
    for finding in soak(asked.steps, asked.algorithms or None):
        print(line(finding), flush=True)
        findings.append(finding)
    ran = [finding for finding in findings if finding.growth]
    bad = [finding for finding in findings if finding.is_bad]
    print(f"{len(ran) - len(bad)} of {len(ran)} runs of {asked.steps:,} steps are flat")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
