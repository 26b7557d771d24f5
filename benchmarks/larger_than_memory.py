"""Hyper-cleaning by stocBiO on a file larger than the memory that it may take.

    python benchmarks/larger_than_memory.py [--gigabytes 8.6] [-o table.md]

Makes rows of 784 features in 10 classes, three tenths of the labels replaced, in a temporary folder
(removed at the end), and runs stocBiO on them: the same rows in memory and stored, where they fit;
stored, where they do not, with the file in the system's cache and without. Each case is a process
of its own, whose peak of resident memory is reported. Rows per second count all rows of all
batches: 16 of inner steps, 16 of Hessians, one each of the cross product, the outer gradient (from
trusted rows, in memory) and the curvature that sets the step size. "Vectors alone" has as many rows
as the large file, with one feature: what a step does with x, whatever the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bilevel.stored import NpyRows, ParquetRows, StoredRows, write_npy

import bilevel

FEATURES, CLASSES, REPLACED, TRUSTED = 784, 10, 0.3, 5_000
BATCHES_A_STEP = 16 + 16 + 3
BLOCK, GROUP = 8_192, 1_000
STEPS = {50: 30, 500: 8, 5_000: 4}
CLEANING_STEPS = 12
SIDE_FILES = ("given", "right", "trusted", "trusted_labels")
Array = np.ndarray[Any, Any]


def sample(rng: np.random.Generator, means: Array, rows: int) -> tuple[Array, Array]:
    """Gaussian clouds, one a class."""
    labels = rng.integers(CLASSES, size=rows)
    return rng.standard_normal((rows, FEATURES), dtype=np.float32) + means[labels], labels


def generate(folder: Path, rows: int) -> None:
    """features.npy, written block by block; labels as given and as they should be; trusted rows."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((CLASSES, FEATURES)).astype(np.float32)
    means *= 3 / np.linalg.norm(means, axis=1, keepdims=True)
    right = np.empty(rows, np.int64)
    with (folder / "features.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, FEATURES)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, BLOCK):
            block, labels = sample(rng, means, min(BLOCK, rows - start))
            right[start : start + len(labels)] = labels
            file.write(block.data)
        file.flush()
        os.fsync(file.fileno())
    given, _, _ = bilevel.datasets.corrupt(right, REPLACED, classes=CLASSES, seed=0)
    trusted, labels = sample(rng, means, TRUSTED)
    for name, array in zip(SIDE_FILES, (given, right, trusted, labels), strict=True):
        np.save(folder / f"{name}.npy", array)


def write_parquet(path: Path, rows: StoredRows, group: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.list_(pa.float32(), FEATURES)
    with pq.ParquetWriter(path, pa.schema([("features", kind)]), compression="zstd") as writer:
        for start in range(0, len(rows), group):
            block = rows.part(start, min(start + group, len(rows))).all()
            values = pa.array(block.reshape(-1).numpy())
            lists = pa.FixedSizeListArray.from_arrays(values, FEATURES)
            writer.write_table(pa.table({"features": lists}), row_group_size=group)


@dataclass(frozen=True)
class Case:
    """Which rows, where they are, and how they are drawn."""

    folder: str
    file: str
    where: str  # "memory", "stored" or "vectors"
    cached: bool
    batch: int
    steps: int


def features(case: Case) -> Any:
    path = Path(case.folder, case.file)
    if case.where == "memory":
        return torch.from_numpy(np.load(path))
    stored = NpyRows(path)
    if case.where == "vectors":  # as many rows, but next to nothing in them
        return torch.ones(len(stored), 1)
    return stored


def work(case: Case) -> dict[str, float]:
    set_cache(Path(case.folder, case.file), case.cached)
    rows = features(case)
    given, right, trusted, labels = (
        np.load(Path(case.folder, f"{name}.npy"))[: len(rows)] for name in SIDE_FILES
    )
    problem = bilevel.softmax_problem(
        (rows, given),
        (trusted[:, : rows.shape[1]], labels),
        weights=bilevel.SigmoidWeights(),
        penalty=bilevel.Ridge(0.01),
        classes=CLASSES,
    )
    algorithm = bilevel.algorithms.StocBiO(batch=case.batch)
    start = time.process_time()
    result = bilevel.minimize(
        problem, algorithm, steps=case.steps, evaluate_every=case.steps, seed=0
    )
    processor = (time.process_time() - start) / case.steps
    ends = np.array([record.seconds for record in result.history])
    x = np.asarray(result.x)
    seen = x != 0
    return {
        "seconds": float(np.median(np.diff(ends))),
        "processor": processor,
        "peak": peak_resident(),
        "loss": float(result.history[-1].outer_value or np.nan),
        "seen": int(seen.sum()),
        "auc": auc(given[seen] != right[seen], -x[seen]),
    }


def set_cache(path: Path, cached: bool) -> None:
    """Have the file in the system's cache, or out of it."""
    with path.open("rb", buffering=0) as file:
        if cached:
            buffer = bytearray(2**24)
            while file.readinto(buffer):
                pass
        else:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peak_resident() -> float:
    """In MB, of the whole process since its start."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text("ascii").splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def auc(wrong: Array, suspicion: Array) -> float:
    """The chance that a wrong label is more suspicious than a right one."""
    ranks = np.empty(len(wrong))
    ranks[np.argsort(suspicion)] = np.arange(1, len(wrong) + 1)
    bad, good = wrong.sum(), (~wrong).sum()
    return float((ranks[wrong].sum() - bad * (bad + 1) / 2) / (bad * good))


def run(case: Case) -> dict[str, float]:
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def medians(cases: dict[str, Case], repeats: int) -> dict[str, dict[str, float]]:
    """Of each case's figures over the rounds, in which every case has its turn."""
    rounds = [{name: run(case) for name, case in cases.items()} for _ in range(repeats)]
    return {
        name: {key: float(np.median([r[name][key] for r in rounds])) for key in rounds[0][name]}
        for name in cases
    }


IN_MEMORY, COLD, VECTORS = "small, in memory", "large, stored, not cached", "vectors alone"


def measured(folder: Path, batch: int, repeats: int) -> dict[str, dict[str, float]]:
    def case(file: str, where: str, cached: bool = True) -> Case:
        cleaning = not cached and batch == max(STEPS)
        steps = CLEANING_STEPS if cleaning else STEPS[batch]
        return Case(str(folder), file, where, cached, batch, steps)

    small = {
        IN_MEMORY: case("small.npy", "memory"),
        "small, stored, cached": case("small.npy", "stored"),
    }
    large = {
        "large, stored, cached": case("features.npy", "stored"),
        COLD: case("features.npy", "stored", cached=False),
        VECTORS: case("features.npy", "vectors"),
    }
    return medians(small, repeats) | medians(large, 1)


def table_of(folder: Path, repeats: int) -> list[str]:
    lines = [
        "| rows | batch | ms a step | CPU ms | rows a second | against memory | peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for batch in STEPS:
        found = measured(folder, batch, repeats)
        for name, f in found.items():
            times = [f"{1e3 * f[key]:.0f}" for key in ("seconds", "processor")]
            speed, ratio = BATCHES_A_STEP * batch / f["seconds"], found[IN_MEMORY]["seconds"]
            speeds = [f"{speed:,.0f}", f"{ratio / f['seconds']:.2f}"]
            speeds = ["", ""] if name == VECTORS else speeds
            cells = [name, f"{batch:,}", *times, *speeds, f"{f['peak']:.0f}"]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    sentences = ["", cleaned(found[COLD]), "", read_alone(folder)]
    print("\n".join(sentences), flush=True)
    return lines + sentences


def cleaned(end: dict[str, float]) -> str:
    return (
        f"Cleaning on the large file, {CLEANING_STEPS} steps with batches of {max(STEPS):,}: the "
        f"loss on {TRUSTED:,} trusted rows fell from {np.log(CLASSES):.2f} to {end['loss']:.2f}, "
        f"and of the {int(end['seen']):,} rows whose weight has moved, −x ranks the wrong labels "
        f"with a ROC-AUC of {end['auc']:.3f}."
    )


def read_alone(folder: Path) -> str:
    npy, parquet = NpyRows(folder / "small.npy"), ParquetRows(folder / "small.parquet")
    return (
        f"Reading alone, batches of 500 rows of the small file: {reading_speed(npy):,.0f} rows a "
        f"second as .npy, {reading_speed(parquet):,.0f} as Parquet (row groups of {GROUP:,} rows, "
        "256 MB of them kept)."
    )


def reading_speed(rows: StoredRows, batch: int = 500, repeats: int = 6) -> float:
    """Random rows a second; the first batch, which finds nothing kept, does not count."""
    rng = np.random.default_rng(0)
    seconds = []
    for _ in range(repeats):
        numbers = torch.from_numpy(rng.choice(len(rows), batch, replace=False))
        start = time.perf_counter()
        rows.take(numbers)
        seconds.append(time.perf_counter() - start)
    return batch / float(np.median(seconds[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=8.6, help="of the large file")
    parser.add_argument("--small", type=float, default=0.4, help="gigabytes of the one that fits")
    parser.add_argument("--repeats", type=int, default=2, help="rounds of the cases that fit")
    parser.add_argument("--folder", type=Path, help="where to make the files, and remove them")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(work(Case(**json.loads(options.case)))))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which removes the files
    rows, small = (int(1e9 * size / (4 * FEATURES)) for size in (options.gigabytes, options.small))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        needed, free = options.gigabytes + 2 * options.small + 0.1, shutil.disk_usage(folder).free
        if needed * 1e9 > free:
            sys.exit(
                f"{folder} has {free / 1e9:.1f} GB free, and {needed:.1f} GB are needed: give a "
                "--folder on a larger disk, or fewer --gigabytes"
            )
        start = time.perf_counter()
        generate(folder, rows)
        write_npy(folder / "small.npy", NpyRows(folder / "features.npy").part(0, small))
        write_parquet(folder / "small.parquet", NpyRows(folder / "small.npy"), GROUP)
        made = time.perf_counter() - start
        print(f"{rows:,} rows made in {made:.0f} s, peak {peak_resident():.0f} MB", flush=True)
        lines = table_of(folder, options.repeats)
    print(f"{time.perf_counter() - start:.0f} s in all")
    if options.output:
        head = [
            "# Hyper-cleaning on a file larger than memory",
            "",
            f"Made by `python benchmarks/larger_than_memory.py` with {torch.get_num_threads()} "
            "thread(s) of torch, on 2 shared cores: ratios count, not seconds. Small: "
            f"{small:,} rows, {options.small} GB; large: {rows:,} rows, {options.gigabytes} GB.",
            "",
        ]
        options.output.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
