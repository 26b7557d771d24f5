"""Per-feature regularisation: an L2 penalty for each feature, learned on half of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array, issparse
from torch import Tensor

from bilevel.arguments import Positive
from bilevel.datasets import Dataset, load
from bilevel.errors import quoted
from bilevel.lab.tasks.base import Instance, Task
from bilevel.lab.tasks.scores import LabelledRows, model_scores
from bilevel.models.softmax.form import PerFeature
from bilevel.models.softmax.problem import softmax_problem
from bilevel.problem.sources import torch_csr
from bilevel.problem.structure import Variables


@dataclass(frozen=True, kw_only=True)
class PerFeatureRegularisation(Task):
    """f = mean loss on validation rows; g = mean loss + (1/cp) Σ_jk exp(x_j) W_jk².

    The training rows are shuffled and split. Sparse rows stay sparse.

    Args:
        validation_fraction: of the training rows.

    Reference: Ji, Yang & Liang, ICML 2021, "Logistic Regression on 20 Newsgroup" in the
    appendix; Grazzi et al., ICML 2020.

    Example:
        >>> from bilevel.datasets import load
        >>> PerFeatureRegularisation().build(load("digits"), seed=0).problem
        Problem(x: 64 numbers, y: 640 numbers, outer_data: 719 rows, inner_data: 718 rows, torch.float32)
    """  # noqa: E501

    kind: ClassVar[str] = "per-feature"

    validation_fraction: Positive = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.validation_fraction >= 1:
            raise ValueError(
                "validation_fraction must be between 0 and 1, got "
                f"{quoted(self.validation_fraction)}"
            )

    def load(self, data: str) -> Dataset:
        return load(data)

    def build(self, data: Dataset, seed: int) -> Instance:
        X, labels = data.train
        order = np.random.default_rng(seed).permutation(len(labels))
        n = int(len(labels) * (1 - self.validation_fraction))
        parts = {
            "train": _part(X[order[:n]], labels[order[:n]]),
            "validation": _part(X[order[n:]], labels[order[n:]]),
            "test": _part(*data.test),
        }
        problem = softmax_problem(
            parts["train"],
            parts["validation"],
            penalty=PerFeature(),
            classes=len(data.class_names),
        )

        def measure(x: Variables, y: Variables) -> dict[str, float]:
            assert isinstance(y, Tensor)
            return model_scores(y, parts)

        return Instance(problem, measure)


def _part(X: object, labels: object) -> LabelledRows:
    rows = torch_csr(csr_array(X)) if issparse(X) else torch.as_tensor(X)
    return rows, torch.as_tensor(labels)
