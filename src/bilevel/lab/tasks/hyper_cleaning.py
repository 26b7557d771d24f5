"""Data hyper-cleaning: a weight for each training row, learned on rows with right labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import scipy.sparse
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from bilevel.arguments import Count, NonNegative, Positive
from bilevel.datasets import Dataset, corrupt, load
from bilevel.errors import UserError, quoted
from bilevel.lab.tasks.base import Instance, Task
from bilevel.lab.tasks.scores import auc, model_scores, scores_of
from bilevel.models.softmax.form import Ridge, SigmoidWeights
from bilevel.models.softmax.problem import add_bias, softmax_problem
from bilevel.problem.structure import Variables


@dataclass(frozen=True, kw_only=True)
class HyperCleaning(Task):
    """f = mean loss on validation rows; g = mean of σ(x_i) times the loss of row i, plus a ridge.

    The first rows of the training part are trained on, after some of their labels were replaced;
    the next rows are for validation. Among the measures, the training loss and accuracy are
    against the labels as they were before, with equal weights: the figures of the paper by Ji et
    al. are measured so (by its authors' code). `detection_auc` ranks rows by their loss under
    the model, `weight_auc` by −x; both ask for the rows whose label is wrong.

    Args:
        corruption: p, the probability that a training label is replaced by a random class.
        train_rows, validation_rows: how many rows of each.
        ridge: C_r.
        mean, std: the features have values in [0, 1]; this is subtracted, and divided by. None
            uses those of the training rows, taken over all features.

    Reference: Ji, Yang & Liang, ICML 2021, Section 6 and "Data Hyper-Cleaning on MNIST" in the
    appendix; Shaban et al., AISTATS 2019, for C_r.

    Example:
        >>> from bilevel.datasets import load
        >>> task = HyperCleaning(corruption=0.3, train_rows=500, validation_rows=200)
        >>> instance = task.build(load("digits"), seed=0)
        >>> instance.problem
        Problem(x: 500 numbers, y: 650 numbers, outer_data: 200 rows, inner_data: 500 rows, torch.float32)
    """  # noqa: E501

    kind: ClassVar[str] = "hyper-cleaning"

    corruption: NonNegative = 0.4
    train_rows: Count = 20_000
    validation_rows: Count = 5_000
    ridge: Positive = 0.001
    mean: NonNegative | None = None
    std: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.corruption > 1:
            raise ValueError(f"corruption must be from 0 to 1, got {quoted(self.corruption)}")

    def load(self, data: str) -> Dataset:
        return load(data)

    def build(self, data: Dataset, seed: int) -> Instance:
        X, labels = data.train
        if scipy.sparse.issparse(X):
            raise UserError(f"{self.kind} needs dense data, but {quoted(data.name)} is sparse")
        n, m = self.train_rows, self.validation_rows
        if n + m > len(labels):
            raise UserError(
                f"train_rows = {n} and validation_rows = {m} are more than the {len(labels)} "
                f"training rows of {quoted(data.name)}: choose fewer"
            )
        noisy, _, wrong = corrupt(labels[:n], self.corruption, len(data.class_names), seed)
        train, validation, test = (
            self._normalise(rows, X[:n]) for rows in (X[:n], X[n : n + m], data.test[0])
        )
        truth, clean, held_out = (
            torch.as_tensor(part) for part in (labels[:n], labels[n : n + m], data.test[1])
        )
        given = torch.as_tensor(noisy)
        problem = softmax_problem(
            (train, given),
            (validation, clean),
            weights=SigmoidWeights(),
            penalty=Ridge(self.ridge),
            classes=len(data.class_names),
        )
        others = {"validation": (validation, clean), "test": (test, held_out)}

        def measure(x: Variables, y: Variables) -> dict[str, float]:
            assert isinstance(x, Tensor)
            assert isinstance(y, Tensor)
            fitted = train @ y
            scores = scores_of("train", fitted, truth) | model_scores(y, others)
            if wrong.any():
                losses = cross_entropy(fitted, given, reduction="none")
                scores["detection_auc"] = auc(losses, wrong)
                scores["weight_auc"] = auc(-x, wrong)
            return scores

        return Instance(problem, measure)

    def _normalise(self, rows: Any, train: Any) -> Tensor:
        mean = float(train.mean()) if self.mean is None else self.mean
        std = float(train.std()) if self.std is None else self.std
        bias: Tensor = add_bias((torch.as_tensor(rows) - mean) / std)
        return bias
