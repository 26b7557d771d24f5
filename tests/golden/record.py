"""Short runs of every algorithm on four problems, kept to the bit.

    python tests/golden/record.py NAME ...    writes these algorithms' runs anew (all, if none)

A change that means to change them says so in its commit message, and why.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import bilevel
from bilevel.algorithms import registry

FOLDER = Path(__file__).parent
STEPS, SEED = 4, 3


def quadratic() -> bilevel.Problem:
    """Two plain losses without data."""
    scales = torch.linspace(0.5, 3.0, 5, dtype=torch.float64)
    mix = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)
    return bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum() / 2 + 0.1 * x.square().sum(),
        inner=lambda x, y: (scales * (y - mix @ x).square()).sum() / 2,
        x0=torch.ones(3, dtype=torch.float64),
        y0=torch.zeros(5, dtype=torch.float64),
    )


def sums() -> bilevel.Problem:
    """A mean over rows, with a network of two layers as y and penalties as x."""
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    sizes = {name: p.shape for name, p in module.named_parameters()}
    y0 = {name: _ramp(shape.numel()).reshape(shape) / 2 for name, shape in sizes.items()}
    X = torch.stack([_ramp(40), _ramp(40).mul(5).sin()], 1)
    b = torch.sin(2 * X[:, :1]) + X[:, 1:] ** 2

    def outer(x: Any, y: Any, batch: bilevel.Batch) -> Tensor:
        return (functional_call(module, y, (batch.data[0],)) - batch.data[1]).square().mean()

    def inner(x: Any, y: Any, batch: bilevel.Batch) -> Tensor:
        penalty = sum(x[i].exp() * p.square().sum() for i, p in enumerate(y.values()))
        return outer(x, y, batch) + penalty / 4

    data = {"outer_data": (X[::2], b[::2]), "inner_data": (X[1::2], b[1::2])}
    return bilevel.Problem(outer, inner, torch.zeros(4).double(), y0, **data)


def softmax() -> bilevel.Problem:
    """Softmax regression in closed form, with a weight a row and a penalty a feature."""
    return bilevel.softmax_problem(
        _rows(0), _rows(1), weights=bilevel.SigmoidWeights(), penalty=bilevel.PerFeature()
    )


def single() -> bilevel.Problem:
    """The same kind of problem in single precision, with one fixed penalty."""
    train, validation = ((X.float(), labels) for X, labels in (_rows(2), _rows(3)))
    return bilevel.softmax_problem(
        train, validation, weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1)
    )


PROBLEMS = {p.__name__: p for p in (quadratic, sums, softmax, single)}


def _ramp(n: int) -> Tensor:
    return torch.linspace(-1, 1, n, dtype=torch.float64)


def _rows(seed: int) -> tuple[Tensor, Tensor]:
    """30 rows of 4 features, 3 classes; made without a generator, which may change."""
    t = torch.arange(120, dtype=torch.float64).reshape(30, 4) + 1
    X = torch.frac(t * 0.618033988749895 * (seed + 1)) * 4 - 2
    W = _ramp(12).mul(3).cos().reshape(4, 3)
    return X, (X @ W).argmax(1)


def run(algorithm: str, problem: str) -> dict[str, Any]:
    """What is kept of a run: every number in hexadecimal."""
    result = bilevel.minimize(
        PROBLEMS[problem](), registry()[algorithm].make(), steps=STEPS, seed=SEED
    )
    return {
        "x": _hex(result.x),
        "y": _hex(result.y),
        "counts": dict(result.counts),
        "outer_value": [float(r.outer_value or 0.0).hex() for r in result.history],
        "hypergradient_norm": [r.hypergradient_norm.hex() for r in result.history],
    }


def _hex(variables: Any) -> list[str]:
    parts = variables.values() if isinstance(variables, dict) else [variables]
    return [number.hex() for part in parts for number in part.double().flatten().tolist()]


def kept(algorithm: str) -> dict[str, Any]:
    """By problem, what was recorded."""
    found: dict[str, Any] = json.loads((FOLDER / f"{algorithm}.json").read_text("utf-8"))
    return found


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or registry():
        runs = {problem: run(name, problem) for problem in PROBLEMS}
        text = json.dumps(runs, indent=0) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
