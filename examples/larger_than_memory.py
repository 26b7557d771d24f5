"""Rows that stay on disk.

200,000 rows are in a file of 154 MB. Hyper-cleaning by stocBiO reads the rows of each batch from
the file, and holds no more of it. It would do the same with a file of a terabyte; the benchmark
"Larger than memory" has the figures for 8.6 GB.

What to change: use the path of your own .npy file; Parquet is read by `bilevel.stored.ParquetRows`,
and is best converted once to .npy by `bilevel.stored.write_npy`.
"""

from __future__ import annotations

import sys
import tempfile

import matplotlib.pyplot as plt
import numpy as np

import bilevel

ROWS, FEATURES = 200_000, 192
random = np.random.default_rng(0)
truth = random.normal(size=FEATURES).astype(np.float32)


def drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = random.standard_normal((rows, FEATURES), dtype=np.float32)
    return X, (X @ truth > 0).astype(np.int64)


with tempfile.TemporaryDirectory() as folder:
    file = f"{folder}/rows.npy"
    on_disk = np.lib.format.open_memmap(file, "w+", np.float32, (ROWS, FEATURES))
    labels = np.empty(ROWS, np.int64)
    for first in range(0, ROWS, 10_000):  # written in pieces: it need not fit here, either
        part = slice(first, first + 10_000)
        on_disk[part], labels[part] = drawn(10_000)
    del on_disk
    wrong = random.random(ROWS) < 0.3
    labels[wrong] = 1 - labels[wrong]

    rows = bilevel.stored.NpyRows(file)
    problem = bilevel.softmax_problem(
        (rows, labels), drawn(2000), weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(1e-3)
    )
    method = bilevel.algorithms.StocBiO(
        inner_steps=10,
        inner_lr=0.5,
        neumann_terms=5,
        neumann_lr=0.5,
        batch=500,
        outer=bilevel.updates.Adam(0.1),
    )
    result = bilevel.minimize(problem, method, steps=40)

values = [record.outer_value for record in result.history]
read = [(r.counts.gc_g_samples + r.counts.hv_samples) * FEATURES * 4 / 1e6 for r in result.history]
print(f"{ROWS * FEATURES * 4 / 1e6:.0f} MB on disk, {read[-1]:.0f} MB of rows read")
print(f"validation loss {values[0]:.3f} -> {values[-1]:.3f}")
assert values[-1] < values[0] - 0.03
plt.plot(read, values)
plt.xlabel("MB of rows read so far"), plt.ylabel("validation loss")
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "larger_than_memory.png")
