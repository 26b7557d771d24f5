"""What a checkpoint costs in a long run: CPU seconds and bytes after so many steps.

    python benchmarks/checkpoints.py [--records 200000]

A run of small vectors that has this many records in its history writes a checkpoint, takes a
hundred steps, and writes the next; the second is what each checkpoint of a long run costs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from bilevel.algorithms.contract import State
from bilevel.oracles.prices import Counts
from bilevel.runs.checkpoints.keeper import Keeper, keeper_in
from bilevel.runs.checkpoints.saved import Saved
from bilevel.runs.history import HistoryRecord, Past

_BETWEEN = 100  # steps from one checkpoint to the next


def record(step: int) -> HistoryRecord:
    report = {"inner_status": "step_limit", "inner_steps": 10, "linear_residual": 1 / (step + 1)}
    counts = Counts(*(step * n for n in (2, 10, 1, 5, 200, 1000, 100, 500)))
    return HistoryRecord(step, 0.01 * step, 1 / (step + 1), 1 / (step + 2), {}, counts, report)


def cost(keeper: Keeper, history: list[HistoryRecord]) -> float:
    points = {"x": torch.zeros(100), "y": torch.zeros(100)}
    start = time.process_time()
    keeper.keep(Saved(Past(State(len(history), points), history=history)))
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    records = parser.parse_args().records
    history = [record(step) for step in range(1, records + 1)]
    with tempfile.TemporaryDirectory() as folder, keeper_in(folder, 0.0, dict) as keeper:
        keeper.begin(Saved(Past(State(0, {"x": torch.zeros(100), "y": torch.zeros(100)}))))
        first = cost(keeper, history)
        history += [record(records + i) for i in range(1, _BETWEEN + 1)]
        log = Path(folder) / "history.jsonl"
        before = log.stat().st_size
        second = cost(keeper, history)
        grown = log.stat().st_size - before
        newest = max(Path(folder).glob("step-*.pt"), key=lambda file: file.stat().st_mtime)
        size = newest.stat().st_size
    print(f"{records:,} records at once: {first:.2f} s of CPU")
    print(f"the next checkpoint, {_BETWEEN} steps later: {1000 * second:.1f} ms of CPU, ", end="")
    print(f"{(grown + size) / 1000:.0f} kB written")


if __name__ == "__main__":
    main()
