"""Constants of softmax regression, from inequalities that hold for every W.

With a_i the rows, s_i their weights and, for classes, A(z) = diag(p) − pp' the Hessian of the
cross-entropy at logits z: ‖A‖ ≤ ½, and ‖A(z) − A(z')‖ ≤ ‖z − z'‖/√2, because the third derivative
along u, u, w is E(u − Eu)²(w − Ew), where Var u ≤ ½ and |w − Ew| ≤ √2 for unit u and w. For one
column, see `losses`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.models.softmax.design import design
from bilevel.models.softmax.form import Matrix, SoftmaxForm
from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.problem.constants import Constant, Kind, Known
from bilevel.problem.parts import Part
from bilevel.problem.peers import Alone, Peers
from bilevel.problem.sources import scipy_csr
from bilevel.problem.stored import StoredRows

_PRODUCTS = 60  # enough for the largest eigenvalue of a Gram matrix to several digits


@dataclass(frozen=True)
class Held:
    """The rows of a form: all of them, or a part, with the others held by peers."""

    part: Part
    peers: Peers

    @staticmethod
    def all(rows: int) -> Held:
        return Held(Part(0, rows, rows), Alone())

    def own(self, of_rows: Tensor) -> Tensor:
        """From one number per row, those of the rows held here."""
        return of_rows[self.part.first : self.part.end]

    def gathered(self, own: Tensor) -> Tensor:
        """One number for each of all rows, from those of the rows held here."""
        whole = own.new_zeros(self.part.total)
        whole[self.part.first : self.part.end] = own
        return self.peers.sum(whole)


def softmax_constants(form: SoftmaxForm, x: Tensor, y: Tensor, inner: Held, outer: Held) -> Known:
    """All constants but σ, over all rows, at this x and for all W; ‖∇x∇y g‖ is at this W.

    Args:
        form: that of the rows held here.
        x, y: whole.
        inner, outer: which rows these are.
    """
    W, n = y.view(form.shape), inner.part.total
    of_weights, of_penalties = _split(form, x, n)
    s = _row_weights(form, of_weights, inner)
    c2 = 2 * torch.as_tensor(form.penalty.coefficients(of_penalties, W), dtype=W.dtype)
    norms = inner.gathered(_row_norms(form.train))
    parts, h = list(_cross_parts(form, s, c2, W, norms, inner)), form.loss.curvature
    return {
        "mu": Constant(float(c2.min()), Kind.BOUND, "twice the least penalty"),
        "L_g": Constant(
            h * _largest(form.train, s, inner) + float(c2.max()),
            Kind.BOUND,
            f"{h:g} λmax(Σ s_i a_i a_i'/n) by Lanczos, plus twice the greatest penalty",
        ),
        "cross": Constant(math.hypot(*(part[0] for part in parts)), Kind.BOUND, "at this W"),
        "L_fx": Constant(0.0, Kind.EXACT, "f has no x"),
        "L_xx": Constant(0.0, Kind.EXACT, "f has no x"),
        "L_fy": Constant(
            h * _largest(form.validation, None, outer),
            Kind.BOUND,
            f"{h:g} λmax(Σ a_i a_i'/m) by Lanczos",
        ),
        **_slope(form, outer),
        "rho": Constant(
            float((s * norms**3).sum()) / n * form.loss.bend,
            Kind.BOUND,
            f"{form.loss.bend:.4g} Σ s_i ‖a_i‖³/n",
        ),
        "tau": Constant(math.hypot(*(part[1] for part in parts)), Kind.BOUND, "for all W"),
        "tau_x": Constant(math.hypot(*(part[2] for part in parts)), Kind.BOUND, "at this W"),
    }


def inner_curvature(form: SoftmaxForm) -> float:
    """A bound on ‖∇²y g‖ for all W, if no weight exceeds 1 (or the given one) and x's penalties
    are at most exp(0)."""
    given = form.weights if isinstance(form.weights, Tensor) else None
    shape = form.penalty_shape
    zero = None if shape is None else form.zeros(shape)
    c = torch.as_tensor(form.penalty.coefficients(zero, form.zeros(form.shape)))
    largest = _largest(form.train, given, Held.all(form.train.shape[0]))
    return form.loss.curvature * largest + 2 * float(c.max())


def _slope(form: SoftmaxForm, outer: Held) -> Known:
    """M, if the loss of a row has a bounded gradient."""
    slope = form.loss.slope
    if math.isinf(slope):
        return {}
    mean = float(outer.gathered(_row_norms(form.validation)).mean())
    return {"M": Constant(slope * mean, Kind.BOUND, f"{slope:.4g} Σ ‖a_i‖/m")}


def _cross_parts(
    form: SoftmaxForm, s: Tensor, c2: Tensor, W: Tensor, norms: Tensor, inner: Held
) -> Iterator[tuple[float, float, float]]:
    """(‖∇x∇y g‖ at W, its Lipschitz constants in W and x), of the weights and the penalties."""
    n = len(norms)
    if form.weighted:
        slope = s * (1 - s)
        P = form.loss.predicted(design(form.train).push(W))
        errors = form.loss.errors(P, form.train_labels)
        each = inner.gathered(errors.norm(dim=1)) * norms
        yield (
            float((slope * each).norm()) / n,  # the Frobenius norm
            float((slope * form.loss.curvature * norms**2).norm()) / n,
            float((slope * (1 - 2 * s) * each).abs().max()) / n,
        )
    if form.penalty_shape is not None:
        each = c2 * W  # and its own derivative, as c is an exponential
        # All weights that share a penalty belong together.
        size = each.square().sum_to_size(c2.shape).sqrt()
        yield float(size.max()), float(c2.max()), float(size.max())


def _split(form: SoftmaxForm, x: Tensor, n: int) -> tuple[Tensor | None, Tensor | None]:
    rows = n if form.weighted else 0
    shape = form.penalty_shape
    return (x[:rows] if rows else None), (None if shape is None else x[rows:].view(shape))


def _row_weights(form: SoftmaxForm, of_weights: Tensor | None, inner: Held) -> Tensor:
    if of_weights is not None:
        return of_weights.sigmoid()
    if isinstance(form.weights, Tensor):
        return inner.gathered(form.weights)
    return torch.ones(inner.part.total, dtype=form.train.dtype)


def _row_norms(rows: Matrix) -> Tensor:
    if isinstance(rows, StoredRows):
        return torch.cat([torch.linalg.vector_norm(block, dim=1) for _, block in rows.blocks()])
    if rows.layout != torch.strided:
        return torch.as_tensor(scipy_csr(rows).copy().power(2).sum(axis=1)).sqrt()
    found: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return found


def _largest(rows: Matrix, s: Tensor | None, held: Held) -> float:
    """λmax(Σ s_i a_i a_i'/n), plus the possible error of Lanczos."""
    X, n = design(rows), held.part.total
    weights = held.own(torch.ones(n, dtype=rows.dtype) if s is None else s)

    def product(v: Tensor) -> Tensor:
        return held.peers.sum(X.pull(X.push(v[:, None]) * weights[:, None] / n)[:, 0])

    found = extreme_eigenvalues(product, torch.empty(rows.shape[1], dtype=rows.dtype), _PRODUCTS)
    return found.largest + found.largest_error
