"""Linear heads on features, in closed form: all tasks of a batch by batched matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from bilevel.models.heads.embedded import Embedded
from bilevel.models.heads.form import HeadForm, TaskOracle
from bilevel.models.heads.recording import Scratch
from bilevel.oracles.points import Inner, Linear, Outer, Start
from bilevel.problem.model import Model
from bilevel.problem.sources import Rows, Source

_GRAPH_BYTES = 2**30


@dataclass(frozen=True)
class HeadModel(Model):
    """Heads in closed form, on features that are computed once per step."""

    form: HeadForm

    def oracle(self, problem: Any, seed: int) -> HeadOracle:
        return HeadOracle(self.form, problem.inner_data, seed)

    def adapting(self, tasks: Source, x0: Any, y0: Any) -> HeadOracle:
        """For tasks to adapt to, without derivatives by x: no graph is kept."""
        return HeadOracle(self.form, tasks, graph_bytes=0)


class HeadOracle(TaskOracle):
    """The derivatives of `HeadForm`, equal to autograd's up to rounding.

    With Z_i the features of task i's support images and a one, P_i = softmax(Z_i W_i), Y the
    one-hot labels, n support images per task and U = Z V:

        ∇W g = Z'(P − Y)/n + 2rW,                ∇Z g = (P − Y)W'/n
        ∇²W g·V = Z'T/n + 2rV,                   T = P∘U − P∘rowsum(P∘U)
        ∇Z∇W g·V = ((P − Y)V' + T W')/n,         the covector that `pull` takes back to x

    The embedding is evaluated once for each x and batch of tasks, whatever the number of inner
    steps, and differentiated once for each hypergradient.

    Args:
        form: the losses.
        data: the tasks' images, support before query.
        seed: of the streams.
        graph_bytes: how much memory the embedding's graphs may take between its evaluation and
            its derivative; what does not fit is evaluated again.
    """

    def __init__(
        self, form: HeadForm, data: Source, seed: int = 0, graph_bytes: int = _GRAPH_BYTES
    ) -> None:
        self.form, self.seed, self.graph_bytes, self._data = form, seed, graph_bytes, data
        self.inner_rows = self.outer_rows = len(data)
        self.x_size = form.parameters.size + self.head_size
        self.y_size = form.heads * (form.features + 1) * form.shape.ways
        self.dtype, self.device = form.parameters.dtype, form.parameters.device
        self._embedded: Embedded | None = None
        self._scratch = Scratch()

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _HeadOuter(self, x, y, rows)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return _HeadPoint(self, x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return _HeadPoint(self, x, y, rows)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        at = self.embedded(x, rows)
        features = at.values[..., :-1]
        if len(covector) != features.numel() + self.head_size:
            raise ValueError(
                "the derivative belongs to other tasks than those of the outer step: few-shot "
                "problems are solved on all tasks of a step, so use batch=None, and choose their "
                "number in few_shot_problem"
            )
        of_parameters = at.pull(covector[: features.numel()].view_as(features))
        return torch.cat([of_parameters, covector[features.numel() :]])

    def start(self, x: Tensor, y: Tensor, rows: Rows = None) -> Start:
        return _HeadStart(self, x, y, rows)

    def query_logits(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        at = self.seen(x, rows)
        return at.values[:, self.form.shape.support :] @ self.heads(y, at)

    def embedded(self, x: Tensor, rows: Rows) -> Embedded:
        """The tasks' features at x, evaluated unless they are those of the last call."""
        if self._embedded is None or not self._embedded.is_at(x, rows):
            self._embedded = None  # frees the last graphs before the next are made
            self._embedded = self._embed(x, rows, self.graph_bytes)
        return self._embedded

    def seen(self, x: Tensor, rows: Rows) -> Embedded:
        """The same if only values are needed: without graphs, and without dropping others."""
        last = self._embedded
        return last if last is not None and last.is_at(x, rows) else self._embed(x, rows, 0)

    def _embed(self, x: Tensor, rows: Rows, graph_bytes: int) -> Embedded:
        parameters = x[: len(x) - self.head_size]
        batch = self._data.batch(rows)
        return Embedded(self.form, x, parameters, rows, batch, graph_bytes, self._scratch)

    @property
    def head_size(self) -> int:
        """How many entries of x are a head."""
        return (self.form.features + 1) * self.form.shape.ways if self.form.learned_start else 0

    def heads(self, y: Tensor, at: Embedded) -> Tensor:
        """The batch's heads, (tasks, features + 1, ways)."""
        return y.view(self.form.heads, -1, self.form.shape.ways)[at.slots]

    def scatter(self, of_heads: Tensor, at: Embedded) -> Tensor:
        """A vector of y that is zero for the tasks that are not in the batch."""
        out = of_heads.new_zeros(self.form.heads, *of_heads.shape[1:])
        return out.index_add_(0, at.slots, of_heads).view(-1)

    def covector(self, of_features: Tensor) -> Tensor:
        """The covector of x from that of the features; that of a learned start, zero, follows."""
        flat = of_features.reshape(-1)
        return torch.cat([flat, flat.new_zeros(self.head_size)]) if self.head_size else flat

    def one_hot(self, labels: Tensor) -> Tensor:
        """Y, the same for every task."""
        return one_hot(labels, self.form.shape.ways).to(self.dtype)


class _HeadOuter(Outer):
    def __init__(self, oracle: HeadOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows

    def value(self) -> Tensor:
        logits = self._oracle.query_logits(self._x, self._y, self._rows)
        labels = self._oracle.form.shape.query_labels.expand(len(logits), -1)
        return cross_entropy(logits.mT, labels)

    def gradient(self) -> tuple[Tensor, Tensor]:
        oracle, shape = self._oracle, self._oracle.form.shape
        at = oracle.embedded(self._x, self._rows)
        Z, W = at.values[:, shape.support :], oracle.heads(self._y, at)
        errors = (Z @ W).softmax(2) - oracle.one_hot(shape.query_labels)
        errors /= errors.shape[0] * errors.shape[1]
        support = torch.zeros_like(at.values[:, : shape.support, :-1])
        of_features = torch.cat([support, errors @ W[:, :-1].mT], dim=1)
        return oracle.covector(of_features), oracle.scatter(Z.mT @ errors, at)


class _HeadStart(Start):
    """Every head starts from the one that ends x, if x has one."""

    def __init__(self, oracle: HeadOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows

    def point(self) -> Tensor:
        if not self._oracle.head_size:
            return self._y
        return self._x[len(self._x) - self._oracle.head_size :].repeat(self._oracle.form.heads)

    def pull(self, r: Tensor) -> Tensor:
        # The start does not depend on features; in a covector, the head follows them.
        values = self._oracle.embedded(self._x, self._rows).values
        zeros = torch.zeros_like(values[..., :-1]).view(-1)
        of_head = r.view(self._oracle.form.heads, -1).sum(0)[: self._oracle.head_size]
        return torch.cat([zeros, of_head])


class _HeadPoint(Linear):
    """g at a point; intermediate results are kept for further calls."""

    def __init__(self, oracle: HeadOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows
        self._n, self._c2 = oracle.form.shape.support, 2 * oracle.form.ridge

    @cached_property
    def _at(self) -> Embedded:
        return self._oracle.embedded(self._x, self._rows)

    @cached_property
    def _W(self) -> Tensor:
        return self._oracle.heads(self._y, self._at)

    @cached_property
    def _Z(self) -> Tensor:
        return self._at.values[:, : self._n]

    @cached_property
    def _P(self) -> Tensor:
        return (self._Z @ self._W).softmax(2)

    def value(self) -> Tensor:
        at = self._oracle.seen(self._x, self._rows)  # without graphs
        W = self._oracle.heads(self._y, at)
        logits = at.values[:, : self._n] @ W
        labels = self._oracle.form.shape.support_labels.expand(len(logits), -1)
        data = cross_entropy(logits.mT, labels) * len(logits)
        return data + self._oracle.form.ridge * W.square().sum()

    def gradient_x(self) -> Tensor:
        return self._of_support(self._errors() @ self._W[:, :-1].mT)

    def gradient(self) -> Tensor:
        return self._to_y(self._Z.mT @ self._errors() / self._n + self._c2 * self._W)

    def hvp(self, v: Tensor) -> Tensor:
        V = self._oracle.heads(v, self._at)
        return self._to_y(self._Z.mT @ self._spread(self._Z @ V) / self._n + self._c2 * V)

    def cross(self, v: Tensor) -> Tensor:
        V = self._oracle.heads(v, self._at)
        T = self._spread(self._Z @ V)
        return self._of_support(self._errors() @ V[:, :-1].mT + T @ self._W[:, :-1].mT)

    def _of_support(self, of_support: Tensor) -> Tensor:
        """The covector of the support images' features; g does not depend on query images."""
        queries = torch.zeros_like(self._at.values[:, self._n :, :-1])
        return self._oracle.covector(torch.cat([of_support / self._n, queries], dim=1))

    def diagonal(self) -> Tensor:
        return self._to_y(self._Z.square().mT @ (self._P * (1 - self._P)) / self._n + self._c2)

    def sketch(self) -> Tensor:
        return self.diagonal()

    def inverse_from(self, sketch: Tensor) -> Callable[[Tensor], Tensor]:
        diagonal = sketch.where(sketch != 0, 1.0)  # heads of tasks that are not in the batch
        return lambda v: v / diagonal

    def _errors(self) -> Tensor:
        return self._P - self._oracle.one_hot(self._oracle.form.shape.support_labels)

    def _spread(self, U: Tensor) -> Tensor:
        """T: the derivative of softmax along U."""
        PU = self._P * U
        return PU - self._P * PU.sum(2, keepdim=True)

    def _to_y(self, of_heads: Tensor) -> Tensor:
        return self._oracle.scatter(of_heads, self._at)
