"""How many labels are wrong while the public code of Ji, Yang & Liang learns.

python benchmarks/authors_labels.py CLONE     # a minute; writes docs/reproductions/results

CLONE is a copy of github.com/JunjieYang97/stocBiO at e98c7a1, of which nothing is here. Its
mnist_exp.py runs as it is, but for two things. The loader of MNIST is ours, with the same rows in
the same order (torchvision no longer fits it), and remembers the labels that it gave: after each
epoch they are compared with the truth. And labels are copied where a GPU would copy them: without
one autograd stops "HOAG", because labels that it needs have been changed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from torch import Tensor

from bilevel.datasets import load

FILE = Path(__file__).resolve().parents[1] / "docs/reproductions/results/authors-labels.json"
ROWS = 20_000
RUNS = (
    {"alg": "stocBiO", "batch_size": 50, "noise_rate": 0.1, "epochs": 50},
    {"alg": "stocBiO", "batch_size": 50, "noise_rate": 0.4, "epochs": 50},
    {"alg": "stocBiO", "batch_size": 1000, "noise_rate": 0.1, "epochs": 50},
    {"alg": "HOAG", "batch_size": ROWS, "noise_rate": 0.1, "epochs": 1},
)


class Batches:
    """Batches in order, with labels that are new in each pass, as a DataLoader's are."""

    def __init__(self, rows: Any, labels: Any, size: int) -> None:
        images = (torch.as_tensor(rows) - 0.1307) / 0.3081
        self._images = images.reshape(-1, 1, 28, 28).split(size)
        self._labels = torch.as_tensor(labels).split(size)
        self.given: list[list[Tensor]] = []  # by pass

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.given.append([labels.clone() for labels in self._labels])
        return iter(zip(self._images, self.given[-1], strict=True))

    def wrong(self) -> float:
        """The share of the training rows whose label is not the first one any more.

        The second pass is the one that the code keeps; in the first it measures a loss.
        """
        now, truth = torch.cat(self.given[1])[:ROWS], torch.cat(self._labels)[:ROWS]
        return float((now != truth).double().mean())


def authors(clone: Path) -> ModuleType:
    """Their module; of torchvision it uses only what loads MNIST, which is not called."""
    stand_ins = ("torchvision", "torchvision.transforms")
    sys.modules.update({name: MagicMock() for name in stand_ins})
    folder = clone / "Hyperparameter-optimization"
    sys.path[:0] = [str(folder), str(folder / "experimental")]
    return importlib.import_module("mnist_exp")


def observed(module: Any, run: dict[str, Any]) -> dict[str, Any]:
    """A run with the code's other defaults: the share of wrong labels after each epoch, and how far
    the first outer update is from the one without derivatives through the inner steps.
    """
    data = load("mnist")
    sys.argv = ["mnist_exp.py"]
    for name, value in run.items():
        sys.argv += [f"--{name}", str(value)]
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - theirs
    args = module.parse_args()
    train, test = Batches(*data.train, args.batch_size), Batches(*data.test, args.test_size)
    measured, corrupted, estimated = module.loss_test_avg, module.nositify, module.stocbio
    wrong: list[float] = []
    differences: list[float] = []

    def listened(*given: Any) -> Any:
        if len(train.given) > 1:  # not before the first epoch
            wrong.append(train.wrong())
        return measured(*given)

    def compared(params: list[Tensor], *given: Any) -> Tensor:
        update: Tensor = estimated(params, *given)
        if not differences:
            partial = estimated([p.detach().requires_grad_() for p in params], *given)
            differences.append(float((update - partial).norm() / partial.norm()))
        return update

    changes = {
        "loss_test_avg": listened,
        "nositify": lambda *given: corrupted(*given).clone(),
        "stocbio": compared,
    }
    with patch.multiple(module, **changes):
        module.train_model(args, train, test)
    return {"wrong": wrong, "through the inner steps": differences[0]}


def main() -> None:
    torch.set_num_threads(1)
    module = authors(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:  # they write where they are
        os.chdir(folder)
        runs = [{**run, **observed(module, run)} for run in RUNS]
    FILE.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
