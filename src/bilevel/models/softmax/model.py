"""What is known about softmax regression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bilevel.models.softmax.bounds import Held, inner_curvature, softmax_constants
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle, worth_compiling
from bilevel.models.softmax.design import design
from bilevel.models.softmax.form import SoftmaxForm
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.models.softmax.verbs import in_arrays
from bilevel.problem.constants import Known
from bilevel.problem.model import Model
from bilevel.problem.parts import Part
from bilevel.problem.peers import Peers
from bilevel.problem.sources import scipy_csr, torch_csr
from bilevel.problem.stored.base import StoredRows


@dataclass(frozen=True)
class SoftmaxModel(Model):
    """All derivatives in closed form, by compiled kernels where they pay; constants as bounds."""

    form: SoftmaxForm

    renumbers = True

    @property
    def in_array_code(self) -> bool:
        return in_arrays(self.form)

    @property
    def columns(self) -> int:
        return self.form.classes

    def oracle(self, problem: Any, seed: int) -> SoftmaxOracle:
        kind = CompiledSoftmaxOracle if worth_compiling(self.form) else SoftmaxOracle
        return kind(self.form, seed)

    def part(self, inner: Part, outer: Part) -> PartOfSoftmaxModel:
        form, weights = self.form, self.form.weights
        held = replace(
            form,
            train=_slice(form.train, inner),
            train_labels=form.train_labels[inner.first : inner.end].clone(),
            validation=_slice(form.validation, outer),
            validation_labels=form.validation_labels[outer.first : outer.end].clone(),
            weights=_slice(weights, inner) if isinstance(weights, Tensor) else weights,
        )
        return PartOfSoftmaxModel(held, inner, outer)

    def restrict(self, x: Tensor, inner: Part) -> Tensor:
        """From the row weights in x, those of the part."""
        if not self.form.weighted:
            return x
        weights, penalties = x[inner.first : inner.end], x[inner.total :]
        return torch.cat([weights, penalties]) if len(penalties) else weights

    def extend(self, covector: Tensor, x: Tensor, inner: Part) -> Tensor:
        if not self.form.weighted:
            return covector
        whole = torch.zeros_like(x)
        whole[inner.first : inner.end] = covector[: len(inner)]
        whole[inner.total :] = covector[len(inner) :]
        return whole

    def constants(self, x: Tensor, y: Tensor) -> Known:
        train, validation = self.form.train.shape[0], self.form.validation.shape[0]
        return softmax_constants(self.form, x, y, Held.all(train), Held.all(validation))

    def good_step(self) -> float | None:
        """At the start, where all weights are ½ or as given: see `inner_curvature`."""
        L = inner_curvature(self.form)
        return 1 / L if L > 0 else None


@dataclass(frozen=True)
class PartOfSoftmaxModel(SoftmaxModel):
    """What one process holds of it."""

    inner: Part
    outer: Part

    def oracle(self, problem: Any, seed: int) -> SoftmaxOracle:
        oracle = super().oracle(problem, seed)
        oracle.train = design(self.form.train, self.inner)
        return oracle

    def joint_constants(self, x: Tensor, y: Tensor, peers: Peers) -> Known:
        return softmax_constants(self.form, x, y, Held(self.inner, peers), Held(self.outer, peers))


def _slice(rows: Any, part: Part) -> Any:
    if isinstance(rows, StoredRows):
        return rows.part(part.first, part.end)
    if rows.layout == torch.sparse_csr:
        return torch_csr(scipy_csr(rows)[part.first : part.end])
    return rows[part.first : part.end].clone()
