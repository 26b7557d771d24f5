"""The problems that the field compares its methods on: those of benchmark_bilevel.

Sizes, splits, losses and starts are the published ones (github.com/benchopt/benchmark_bilevel). Two
draws are our own, with its laws but not its bits: the wrong labels of MNIST, and the quadratics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel.datasets.catalogue import load
from bilevel.errors import pick

if TYPE_CHECKING:
    from torch import Tensor

    from bilevel.problem.problem import Problem

LabelledRows = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A problem, and what methods are compared by.

    Args:
        name: as `benchmark` takes it.
        problem: with its start.
        batch: the batch size of the published settings.
        best: the lowest known Φ; None if the error is what counts.
        rows: by name, such as "test", features and labels on which the error is measured.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.problem.examples import means
        >>> test = torch.eye(2).double(), torch.tensor([0, 0])
        >>> found = bilevel.datasets.Benchmark("mine", means(), rows={"test": test})
        >>> found.errors(torch.eye(2).double())
        {'test_error': 0.5}
    """

    name: str
    problem: Problem
    batch: int = 64
    best: float | None = None
    rows: dict[str, LabelledRows] = field(default_factory=dict)

    def errors(self, W: Tensor) -> dict[str, float]:
        """The share of wrong predictions on each set of rows."""
        return {
            f"{name}_error": float(((X @ W).argmax(1) != labels).double().mean())
            for name, (X, labels) in self.rows.items()
        }


def benchmark(name: str) -> Benchmark:
    """One of the field's problems.

    - "ijcnn1": logistic regression of two classes, g with ½ Σ_j exp(x_j) w_j²; Φ − Φ* counts.
    - "covtype": 7 classes, g with ½ Σ_k exp(x_k) ‖w_k‖²; the validation error counts.
    - "mnist-cleaning-0.5", "-0.7", "-0.9": 20,000 digits, with this share of the labels redrawn, a
      weight σ(x_i) for each and 0.2 ‖W‖²; the test error counts.
    - "quadratics": 32,768 and 1,024 rows, 100 inner and 10 outer variables, μ = 0.1, L = 1; ‖∇Φ‖²
      counts.

    Data that are not in the data folder are downloaded.

    Example:
        >>> import bilevel
        >>> found = bilevel.datasets.benchmark("quadratics")
        >>> len(found.problem.inner_data), len(found.problem.y0), len(found.problem.x0)
        (32768, 100, 10)
    """
    return pick("benchmark", name, _MAKERS)(name)


def benchmarks() -> list[str]:
    """The names that `benchmark` takes.

    Example:
        >>> import bilevel
        >>> bilevel.datasets.benchmarks()[:2]
        ['ijcnn1', 'covtype']
    """
    return list(_MAKERS)


def _ijcnn1(name: str) -> Benchmark:
    import torch

    from bilevel.datasets.ijcnn1_start import X0, Y0
    from bilevel.models.softmax.form import PerFeature
    from bilevel.models.softmax.one_column import logistic_problem

    found = load("ijcnn1")
    rows = ((torch.from_numpy(X).double(), b) for X, b in (found.train, found.test))
    penalty = PerFeature(scale=0.5)
    x0, y0 = (torch.tensor(given, dtype=torch.float64) for given in (X0, Y0))
    problem = logistic_problem(*rows, penalty=penalty, x0=x0, y0=y0[:, None])
    return Benchmark(name, problem, best=0.203498)


def _covtype(name: str) -> Benchmark:
    import torch

    from bilevel.models.softmax.form import PerClass

    found = load("covtype")
    X, labels = (np.concatenate(both) for both in zip(found.train, found.test, strict=True))
    chance = np.random.RandomState(2442)
    rest, test = _split(chance, len(X), math.ceil(len(X) / 5))
    train, validation = _split(chance, len(rest), math.ceil(len(rest) / 5))
    parts = [rest[train], rest[validation], test]
    features, each = [X[rows] for rows in parts], [labels[rows] for rows in parts]
    how = {"penalty": PerClass(scale=0.5), "classes": 7, "x0": torch.full((7,), -2.0)}
    return _softmax(name, features, each, how)


def _cleaning(ratio: float, name: str) -> Benchmark:
    import torch

    from bilevel.models.softmax.form import Ridge, SigmoidWeights

    found = load("mnist")
    (X, labels), (X_test, test_labels) = found.train, found.test
    chance = np.random.RandomState(32)
    train, validation = _split(chance, len(X), 5_000, 20_000)
    dirty = labels[train].copy()
    wrong = chance.rand(len(dirty)) < ratio
    dirty[wrong] = chance.randint(0, 10, int(wrong.sum()))
    features, each = [X[train], X[validation], X_test], [dirty, labels[validation], test_labels]
    weighed = {"weights": SigmoidWeights(), "x0": torch.full((len(dirty),), -2.0)}
    return _softmax(name, features, each, {**weighed, "penalty": Ridge(0.2), "classes": 10})


def _softmax(name: str, features: list[Any], labels: list[Any], how: dict[str, Any]) -> Benchmark:
    """Of train, validation and test rows; the error on the last two counts."""
    import torch

    from bilevel.models.softmax.problem import softmax_problem

    each = zip(_standardised(*features), labels, strict=True)
    train, validation, test = ((torch.from_numpy(X), torch.from_numpy(b)) for X, b in each)
    problem = softmax_problem(train, validation, **how)
    return Benchmark(name, problem, rows={"validation": validation, "test": test})


def _quadratics(name: str) -> Benchmark:
    """g_i = ½ (a_i'y)² + (μ/2)‖y‖² + y'Jx + b_i'y and f_j = ½ (d_j'y)² + ½ (e_j'x)² + c_j'y."""
    import torch

    from bilevel.problem.problem import Problem

    draw = torch.Generator().manual_seed(2442)
    n, m, q, p = 32_768, 1_024, 100, 10

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    scales = torch.linspace(0, 0.9, q, dtype=torch.float64).sqrt()
    A, b = normal(n, q) * scales, normal(n, q)
    D, E, c = normal(m, q) * scales, normal(m, p) * 0.3, normal(m, q)
    J = torch.linalg.qr(normal(q, p))[0] * 0.1

    def inner(x: Tensor, y: Tensor, batch: Any) -> Tensor:
        a, linear = batch.data
        rows = (a @ y).square().mean() / 2 + (linear @ y).mean()
        found: Tensor = rows + 0.05 * y @ y + y @ (J @ x)
        return found

    def outer(x: Tensor, y: Tensor, batch: Any) -> Tensor:
        d, e, linear = batch.data
        squares = (d @ y).square().mean() + (e @ x).square().mean()
        found: Tensor = squares / 2 + (linear @ y).mean()
        return found

    x0, y0 = torch.zeros(p).double(), torch.zeros(q).double()
    return Benchmark(name, Problem(outer, inner, x0, y0, outer_data=(D, E, c), inner_data=(A, b)))


def _split(chance: Any, total: int, second: int, first: int | None = None) -> tuple[Any, Any]:
    """The rows of both parts, drawn as by scikit-learn's train_test_split."""
    order = chance.permutation(total)
    return order[second:][:first], order[:second]


def _standardised(train: Any, *others: Any) -> list[Any]:
    """Scaled by the mean and the deviation of the first, as by scikit-learn's StandardScaler."""
    mean, deviation = train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64)
    deviation[deviation == 0] = 1
    return [((X - mean) / deviation).astype(np.float32) for X in (train, *others)]


_MAKERS: dict[str, Callable[[str], Benchmark]] = {
    "ijcnn1": _ijcnn1,
    "covtype": _covtype,
    **{f"mnist-cleaning-{ratio}": partial(_cleaning, ratio) for ratio in (0.5, 0.7, 0.9)},
    "quadratics": _quadratics,
}
