"""Time and memory against every size that a step can grow with, and the exponents.

    python benchmarks/scaling.py [-o docs/benchmarks/scaling.md] [--repeats 5] [--quick]
        [--axis rows --axis D]

Random softmax problems: dense ones with a weight a training row, sparse ones with a penalty a
feature. All is run by `bilevel.minimize`. Time is the processor's, of a step with all that the
loop does for it; memory is that at the peak of a run, beyond the data. An exponent is the slope
of the logarithm against the logarithm of the size, one a round; the verdict takes the upper half
of the sizes, where fixed costs hide least. A first run compiles kernels for every number of
classes, which is not timed but takes a minute or two.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path

import torch
from scaling.fits import TOLERANCE
from scaling.measuring import measure, weigh_all
from scaling.plot import plot
from scaling.studies import studies
from scaling.table import around_steps, table, verdict

QUICK_SIZES, QUICK_REPEATS = 3, 2


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    begun, load = time.perf_counter(), os.getloadavg()[0]
    chosen = [s for s in studies() if not options.axis or s.axis in options.axis]
    if options.quick:
        chosen = [study.shorter(QUICK_SIZES) for study in chosen]
    repeats = QUICK_REPEATS if options.quick else options.repeats
    curves = []
    for study in chosen:
        curves.append(measure(study, repeats))
        print(f"{study}: {verdict(curves[-1])}", flush=True)
    for curve, memory in zip(curves, weigh_all(chosen), strict=True):
        curve.memory = memory
    options.output.parent.mkdir(parents=True, exist_ok=True)
    picture = options.output.with_suffix(".png")
    plot(curves, picture)
    took = f"It took {time.perf_counter() - begun:.0f} s; load {load:.1f} before."
    text = "\n\n".join(
        [_head(options, repeats, picture.name), table(curves), around_steps(curves), took]
    )
    options.output.write_text(f"{text}\n", encoding="utf-8")
    print(f"{table(curves)}\n\n{around_steps(curves)}\n\n{took}\n{options.output}\n{picture}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    axes = sorted({study.axis for study in studies()})
    parser.add_argument("-o", "--output", type=Path, default=Path("out/scaling/scaling.md"))
    parser.add_argument("--repeats", type=int, default=5, help="rounds, 5 by default")
    parser.add_argument("--axis", action="append", choices=axes, help="by default all")
    parser.add_argument("--quick", action="store_true", help="the smaller sizes, 2 rounds")
    return parser.parse_args()


def _head(options: argparse.Namespace, repeats: int, picture: str) -> str:
    only = "".join(f" --axis {axis}" for axis in options.axis or [])
    return (
        f"# Time and memory against size\n\nMade by `python benchmarks/scaling.py --repeats "
        f"{repeats}{' --quick' * options.quick}{only}` on one thread; {platform.machine()}, Python "
        f"{platform.python_version()}, torch {torch.__version__}.\n\n"
        "An exponent p says that time, or memory, grows as the size to the power p: the median "
        "over the rounds, with the least and the most. Memory is that at the peak of a run beyond "
        "the data, measured once; below 2 MB it is too little to tell. `at most` is what the "
        f"mathematics needs; the verdict allows {TOLERANCE:g} more, for noise and for the caches, "
        "and looks at the upper half of the sizes, where fixed costs hide least. `weights` is the "
        "length of x with batches of one size, `K` the number of outer steps, with the time of "
        "the whole run.\n\n"
        "Not in the table, and faster than linear: `AIDBiO()` without numbers. Its preconditioner "
        "keeps X'X up to some thousands of dense features (p² numbers) and factorises it at each "
        "outer step (p³ operations); beyond, it takes the diagonal.\n\n"
        f"![time and memory against size]({picture})"
    )


if __name__ == "__main__":
    main()
