"""The two problems of the race, at full size, and a small one for trying it out."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from race.case import Array, Case

MEAN, STD, RIDGE, CORRUPTION = 0.1307, 0.3081, 0.001, 0.4


def cleaning(settings: dict[str, float], rows: int = 20_000, validation: int = 5_000) -> Case:
    """Hyper-cleaning of MNIST: normalised pixels and a column of ones, 40 % of labels replaced.

    With a `grain`, noise of that size on every pixel: then no two are the same.
    """
    from bilevel.datasets import corrupt, load

    X, labels = load("mnist").train
    noisy = corrupt(labels[:rows], CORRUPTION, 10, 0)[0]
    pixels = _pixels(X[: rows + validation])
    if grain := settings.get("grain"):
        noise = np.random.default_rng(1).standard_normal(pixels[:, :-1].shape, np.float32)
        pixels[:, :-1] += np.float32(grain) * noise
    train, part = pixels[:rows], slice(rows, rows + validation)
    return Case(train, noisy, pixels[rows:], labels[part], 10, RIDGE, settings)


def newsgroups(settings: dict[str, float], fraction: float = 1.0) -> Case:
    """20 Newsgroups, half of the training rows for validation; one penalty a word."""
    from bilevel.datasets import load

    X, labels = load("newsgroups").train
    order = np.random.default_rng(0).permutation(len(labels))[: int(len(labels) * fraction)]
    n = len(order) // 2
    first, second = order[:n], order[n:]
    train, validation = (
        scipy.sparse.csr_array(X[part]).astype(np.float32) for part in (first, second)
    )
    return Case(train, labels[first], validation, labels[second], 20, None, settings)


def small(settings: dict[str, float], ridge: float | None, sparse: bool) -> Case:
    """60 and 40 random rows, 12 features, 3 classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 12)).astype(np.float32)
    X[rng.random(X.shape) < 0.5] = 0
    labels = rng.integers(3, size=100)
    train, validation = (scipy.sparse.csr_array(P) if sparse else P for P in (X[:60], X[60:]))
    return Case(train, labels[:60], validation, labels[60:], 3, ridge, settings)


def draw_rows(case: Case, steps: int, batch: int) -> list[dict[str, Array]]:
    """The rows that `bilevel` draws by itself with seed 0, so that all work on the same."""
    from bilevel.problem.sampling import Streams

    drawn = []
    for k in range(steps):
        streams = Streams(0, k, case.X.shape[0], case.V.shape[0])
        products = case.count("Q")
        if case.settings.get("truncated"):
            products = streams.below(products)
        counts = {"inner": case.count("D"), "outer": 1, "hessian": products, "cross": 1}
        drawn.append({role: _draw(streams, role, n, batch) for role, n in counts.items()})
    return drawn


def _draw(streams: object, role: str, count: int, batch: int) -> Array:
    if count == 1 and role in ("outer", "cross"):
        return np.stack([streams.rows(role, batch).numpy()])  # type: ignore[attr-defined]
    found = [rows.numpy() for rows in streams.batches(role, batch, count)]  # type: ignore[attr-defined]
    return np.stack(found) if found else np.zeros((0, batch), np.int64)


def _pixels(X: Array) -> Array:
    scaled = (X.astype(np.float32) - np.float32(MEAN)) / np.float32(STD)
    return np.concatenate([scaled, np.ones_like(scaled[:, :1])], axis=1)
