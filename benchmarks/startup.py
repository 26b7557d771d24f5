"""How long bilevel takes to load, on top of torch.

    python benchmarks/startup.py [-o docs/benchmarks/startup.md] [--repeats 15]

Each start is a fresh process that says how long it took to import torch, and how long for what it
was to do then; the starts take turns. `a first step` is more than loading: one step of stocBiO on
ten rows, by the public interface. Byte code is kept in a folder of its own, filled by a first
round that does not count, as after the first use of an installed package. Seconds are the
processor's: other programs on the machine then do not matter.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = 0.2  # seconds on top of torch
USE = "import bilevel; bilevel.minimize, bilevel.softmax_problem, bilevel.algorithms.StocBiO"
STEP = f"""{USE}
rows, labels = torch.eye(10), torch.arange(10)
problem = bilevel.softmax_problem(
    (rows, labels), (rows, labels), weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1))
bilevel.minimize(problem, bilevel.algorithms.StocBiO(), steps=1)"""
HELP = """import sys
sys.argv = ['bilevel', '--help']
from bilevel.cli.main import main
try:
    main()
except SystemExit:
    pass"""
JUDGED = "minimize, softmax_problem, StocBiO"
# What is done first, and then: both are timed.
STARTS = {
    "torch": ("import torch", ""),
    "import bilevel": ("import torch", "import bilevel"),
    JUDGED: ("import torch", USE),
    "a first step": ("import torch", STEP),
    "bilevel --help": ("", HELP),
}
TIMED = """import time
begun = time.process_time()
{first}
between = time.process_time()
{then}
ended = time.process_time()
import sys
print(between - begun, ended - between, file=sys.stderr)
"""
Seconds = tuple[float, float]


def start(first: str, then: str, byte_code: str) -> Seconds:
    """Seconds of a fresh process for the one and for the other."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": byte_code, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", TIMED.format(first=first, then=then)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found = done.stderr.split()
    return float(found[-2]), float(found[-1])


def measure(repeats: int) -> dict[str, list[Seconds]]:
    """Seconds of each start, in rounds."""
    found: dict[str, list[Seconds]] = {name: [] for name in STARTS}
    with tempfile.TemporaryDirectory() as byte_code:
        for _ in range(repeats + 1):
            for name, (first, then) in STARTS.items():
                found[name].append(start(first, then, byte_code))
    return {name: rounds[1:] for name, rounds in found.items()}  # the first wrote byte code


def table(found: dict[str, list[Seconds]]) -> str:
    """Medians with quartiles; the ratio is to torch alone in the same round."""
    lines = ["| start | torch, s | beyond it, s | in all, of torch alone |", "|---|---|---|---|"]
    for name, rounds in found.items():
        torch, beyond = (_spread([each[part] for each in rounds]) for part in (0, 1))
        pairs = zip(rounds, found["torch"], strict=True)
        ratio = statistics.median(sum(own) / sum(alone) for own, alone in pairs)
        cells = [torch if STARTS[name][0] else "", beyond if STARTS[name][1] else ""]
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |")
    return "\n".join(lines)


def verdict(found: dict[str, list[Seconds]]) -> str:
    beyond = statistics.median(then for _, then in found[JUDGED])
    met = "met" if beyond < TARGET else "missed"
    return f"Target: less than {TARGET:g} s on top of torch. {JUDGED}: {beyond:.2f} s, {met}."


def _spread(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("out/startup.md"))
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    load, found = os.getloadavg()[0], measure(options.repeats)
    text = (
        f"# Start-up\n\nMade by `python benchmarks/startup.py --repeats {options.repeats}`; "
        f"{platform.machine()}, Python {platform.python_version()}, one thread, load {load:.1f} "
        "before. Fresh processes that take turns; seconds of the processor, medians with "
        "quartiles.\n\n"
        f"{table(found)}\n\n{verdict(found)}\n"
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print(f"{text}{options.output}")


if __name__ == "__main__":
    main()
