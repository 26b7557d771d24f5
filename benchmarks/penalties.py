"""20 Newsgroups: one learned penalty a feature against one C for all, side by side in one run.

    BILEVEL_DATA=... python benchmarks/penalties.py [-o docs/benchmarks/penalties.md]

101,631 features, 20 classes, 11,314 training and 7,532 test rows. `PenalizedLogisticRegression()`
with no number given, against scikit-learn's LogisticRegression at the C that is best on the test
rows themselves (which flatters it), both on all training rows.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from sklearn.linear_model import LogisticRegression

import bilevel
from bilevel.sklearn import PenalizedLogisticRegression

GRID = (10.0, 30.0, 100.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    data = bilevel.datasets.load("newsgroups")
    lines = ["| model | test accuracy | seconds |", "|---|---|---|"]

    def enter(name: str, model: object) -> float:
        start = time.perf_counter()
        model.fit(*data.train)
        seconds = time.perf_counter() - start
        accuracy = model.score(*data.test)
        lines.append(f"| {name} | {accuracy:.4f} | {seconds:.1f} |")
        print(lines[-1], flush=True)
        return accuracy

    for seed in range(options.seeds):
        enter(f"bilevel, seed {seed}", PenalizedLogisticRegression(random_state=seed))
    for C in GRID:
        enter(f"LogisticRegression(C={C:g})", LogisticRegression(C=C, max_iter=300))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(
            "# One penalty a feature on 20 Newsgroups\n\n"
            "Made by `python benchmarks/penalties.py`, all in one run on 2 shared cores.\n\n"
            + "\n".join(lines)
            + "\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
