"""Linear heads on features, in closed form: all tasks of a batch by batched matrix products."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from bilevel.models.heads.embedded import Embedded
from bilevel.models.heads.form import HeadForm
from bilevel.models.heads.recording import Scratch
from bilevel.oracles.base import Linearization, Oracle
from bilevel.problem.sources import Rows, Source

_GRAPH_BYTES = 2**30


class HeadOracle(Oracle):
    """The derivatives of `HeadForm`, equal to autograd's up to rounding.

    With Z_i the features of task i's support images and a one, P_i = softmax(Z_i W_i), Y the
    one-hot labels, n support images a task and U = Z V:

        ∇W g = Z'(P − Y)/n + 2rW
        ∇²W g·V = Z'T/n + 2rV,                   T = P∘U − P∘rowsum(P∘U)
        ∇Z∇W g·V = ((P − Y)V' + T W')/n,         the covector that `pull` takes back to x

    The embedding is evaluated once for each x and batch of tasks, whatever the number of inner
    steps, and differentiated once for each hypergradient.

    Args:
        form: the losses.
        data: the tasks' images, support before query.
        shared_batch: how many tasks an outer step sees.
        chunk: how many of them are worked on at a time.
        seed: of the streams.
        graph_bytes: how much memory the graphs of the embedding may hold between its evaluation
            and its derivative; what does not fit is evaluated a second time.
    """

    def __init__(
        self,
        form: HeadForm,
        data: Source,
        shared_batch: int | None = None,
        chunk: int | None = None,
        seed: int = 0,
        graph_bytes: int = _GRAPH_BYTES,
    ) -> None:
        self.form, self.seed, self.graph_bytes = form, seed, graph_bytes
        self._data, self.shared_batch, self.chunk = data, shared_batch, chunk
        self.inner_rows = self.outer_rows = len(data)
        self.x_size = form.parameters.size + self._head_size
        self.y_size = form.heads * (form.features + 1) * form.shape.ways
        self.dtype, self.device = form.parameters.dtype, form.parameters.device
        self._embedded: Embedded | None = None
        self._scratch = Scratch()

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        logits = self.query_logits(x, y, rows)
        labels = self.form.shape.query_labels.expand(len(logits), -1)
        return cross_entropy(logits.mT, labels)

    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        at = self.embedded(x, rows)
        Z, W = at.values[:, self.form.shape.support :], self.heads(y, at)
        errors = (Z @ W).softmax(2) - self.one_hot(self.form.shape.query_labels)
        errors /= errors.shape[0] * errors.shape[1]
        support = torch.zeros_like(at.values[:, : self.form.shape.support, :-1])
        of_features = torch.cat([support, errors @ W[:, :-1].mT], dim=1)
        return self.covector(of_features), self.scatter(Z.mT @ errors, at)

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        at = self._seen(x, rows)
        W = self.heads(y, at)
        logits = at.values[:, : self.form.shape.support] @ W
        labels = self.form.shape.support_labels.expand(len(logits), -1)
        return cross_entropy(logits.mT, labels) * len(logits) + self.form.ridge * W.square().sum()

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.linearize(x, y, rows).gradient()

    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        gradient = self.inner_gradient(x, y, rows)
        return self.inner_value(x, y, rows), gradient

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        at = self.embedded(x, rows)
        return _HeadLinearization(self, at, self.heads(y, at))

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        at = self.embedded(x, rows)
        features = at.values[..., :-1]
        if len(covector) != features.numel() + self._head_size:
            raise ValueError(
                "the derivative is of other tasks than those of the outer step: few-shot problems "
                "are solved on all tasks of a step, so use batch=None, and choose how many there "
                "are in few_shot_problem"
            )
        of_parameters = at.pull(covector[: features.numel()].view_as(features))
        return torch.cat([of_parameters, covector[features.numel() :]])

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.form.learned_start:
            return y
        return x[len(x) - self._head_size :].repeat(self.form.heads)

    def pull_start(self, x: Tensor, r: Tensor, rows: Rows = None) -> Tensor:
        # Features play no part in the start; in a covector, the head follows them.
        zeros = torch.zeros_like(self.embedded(x, rows).values[..., :-1]).view(-1)
        return torch.cat([zeros, r.view(self.form.heads, -1).sum(0)[: self._head_size]])

    def query_logits(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """(tasks, query images, ways), for the accuracy."""
        at = self._seen(x, rows)
        return at.values[:, self.form.shape.support :] @ self.heads(y, at)

    def embedded(self, x: Tensor, rows: Rows) -> Embedded:
        """The tasks' features at x, evaluated if they are not those of the last call."""
        if self._embedded is None or not self._embedded.is_at(x, rows):
            self._embedded = None  # frees the last graphs before the next are made
            self._embedded = self._embed(x, rows, self.graph_bytes)
        return self._embedded

    def _seen(self, x: Tensor, rows: Rows) -> Embedded:
        """The same where only values are wanted: without graphs, and without forgetting others."""
        last = self._embedded
        return last if last is not None and last.is_at(x, rows) else self._embed(x, rows, 0)

    def _embed(self, x: Tensor, rows: Rows, graph_bytes: int) -> Embedded:
        parameters = x[: len(x) - self._head_size]
        batch = self._data.batch(rows)
        return Embedded(self.form, x, parameters, rows, batch, graph_bytes, self._scratch)

    @property
    def _head_size(self) -> int:
        """The numbers of x that are a head."""
        return (self.form.features + 1) * self.form.shape.ways if self.form.learned_start else 0

    def heads(self, y: Tensor, at: Embedded) -> Tensor:
        """The batch's heads, (tasks, features + 1, ways)."""
        return y.view(self.form.heads, -1, self.form.shape.ways)[at.slots]

    def scatter(self, of_heads: Tensor, at: Embedded) -> Tensor:
        """A vector of y that is zero for the tasks that are not in the batch."""
        out = of_heads.new_zeros(self.form.heads, *of_heads.shape[1:])
        return out.index_add_(0, at.slots, of_heads).view(-1)

    def covector(self, of_features: Tensor) -> Tensor:
        """That of x from that of the features; a learned start of the heads follows, zero here."""
        flat = of_features.reshape(-1)
        return torch.cat([flat, flat.new_zeros(self._head_size)]) if self._head_size else flat

    def one_hot(self, labels: Tensor) -> Tensor:
        """Y, the same for every task."""
        return one_hot(labels, self.form.shape.ways).to(self.dtype)


class _HeadLinearization(Linearization):
    def __init__(self, oracle: HeadOracle, at: Embedded, W: Tensor) -> None:
        self._oracle, self._at, self._W = oracle, at, W
        self._Z = at.values[:, : oracle.form.shape.support]
        self._P = (self._Z @ W).softmax(2)
        self._n, self._c2 = self._Z.shape[1], 2 * oracle.form.ridge

    def gradient(self) -> Tensor:
        return self._to_y(self._Z.mT @ self._errors() / self._n + self._c2 * self._W)

    def hvp(self, v: Tensor) -> Tensor:
        V = self._oracle.heads(v, self._at)
        return self._to_y(self._Z.mT @ self._spread(self._Z @ V) / self._n + self._c2 * V)

    def cross(self, v: Tensor) -> Tensor:
        V = self._oracle.heads(v, self._at)
        T = self._spread(self._Z @ V)
        of_support = (self._errors() @ V[:, :-1].mT + T @ self._W[:, :-1].mT) / self._n
        queries = torch.zeros_like(self._at.values[:, self._n :, :-1])
        return self._oracle.covector(torch.cat([of_support, queries], dim=1))

    def diagonal(self) -> Tensor:
        return self._to_y(self._Z.square().mT @ (self._P * (1 - self._P)) / self._n + self._c2)

    def approximate_inverse(self) -> Callable[[Tensor], Tensor]:
        diagonal = self.diagonal()
        diagonal[diagonal == 0] = 1  # heads of tasks that are not in the batch
        return lambda v: v / diagonal

    def _errors(self) -> Tensor:
        return self._P - self._oracle.one_hot(self._oracle.form.shape.support_labels)

    def _spread(self, U: Tensor) -> Tensor:
        """T: the derivative of softmax along U."""
        PU = self._P * U
        return PU - self._P * PU.sum(2, keepdim=True)

    def _to_y(self, of_heads: Tensor) -> Tensor:
        return self._oracle.scatter(of_heads, self._at)
