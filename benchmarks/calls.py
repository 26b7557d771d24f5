"""How many calls of our own functions one outer step of AID-BiO makes, and in how many files.

    python benchmarks/calls.py [--inner-steps 10] [--cg-steps 10] [--rows]

The step is the difference between runs of four and of three steps, so that what is made once is not
counted. Comprehensions are not calls. With --rows the losses have data, and read batches of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import bilevel

_HERE = str(Path(bilevel.__file__).parent)


def problem(rows: bool) -> bilevel.Problem:
    """A ridge regression by automatic differentiation, or two squares without data."""
    if not rows:
        return bilevel.Problem(
            outer=lambda x, y: ((y - 1) ** 2).sum(),
            inner=lambda x, y: ((y - x) ** 2).sum(),
            x0=torch.zeros(3),
            y0=torch.zeros(3),
        )
    X = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))

    def error(y: Any, batch: Any) -> Any:
        features, targets = batch.data
        return ((features @ y - targets) ** 2).mean()

    return bilevel.Problem(
        outer=lambda x, y, batch: error(y, batch),
        inner=lambda x, y, batch: error(y, batch) + (x.exp() * y**2).sum(),
        x0=torch.zeros(5),
        y0=torch.zeros(5),
        inner_data=(X[:40], X[:40, 0]),
        outer_data=(X[40:], X[40:, 0]),
    )


def calls(of: bilevel.Problem, method: bilevel.algorithms.Algorithm, steps: int) -> Counter[str]:
    """The calls of a run by file and function."""
    found: Counter[str] = Counter()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(_HERE)
        if is_ours and (not code.co_name.startswith("<") or code.co_name == "<lambda>"):
            file = Path(code.co_filename).relative_to(_HERE)
            found[f"{file} {code.co_qualname}"] += 1

    sys.setprofile(watch)
    try:
        bilevel.minimize(of, method, steps=steps)
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inner-steps", type=int, default=10)
    parser.add_argument("--cg-steps", type=int, default=10)
    parser.add_argument("--rows", action="store_true")
    given = parser.parse_args()
    method = bilevel.algorithms.AIDBiO(
        inner_steps=given.inner_steps, inner_lr=0.1, cg_steps=given.cg_steps, outer_lr=0.1
    )
    of = problem(given.rows)
    calls(of, method, 2)  # what is imported and kept at first use
    step = calls(of, method, 4) - calls(of, method, 3)
    files = Counter[str]()
    for name, count in step.items():
        files[name.partition(" ")[0]] += count
    print(f"{step.total()} calls in {len(files)} files")
    for file, count in files.most_common():
        print(f"{count:5} {file}")


if __name__ == "__main__":
    main()
