"""Constants of softmax regression, by inequalities that hold for every W.

With a_i the rows, s_i their weights and A(z) = diag(p) − pp' the Hessian of the cross-entropy at
logits z: ‖A‖ ≤ ½, and ‖A(z) − A(z')‖ ≤ ‖z − z'‖/√2, because the third derivative along u, u, w is
E(u − Eu)²(w − Ew), where Var u ≤ ½ and |w − Ew| ≤ √2 for unit u and w.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from bilevel.models.softmax.design import design
from bilevel.models.softmax.form import Matrix, SoftmaxForm
from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.problem.constants import Constant, Kind, Known
from bilevel.problem.sources import scipy_csr
from bilevel.problem.stored import StoredRows

_PRODUCTS = 60  # enough for the largest eigenvalue of a Gram matrix to several digits


def softmax_constants(form: SoftmaxForm, x: Tensor, y: Tensor) -> Known:
    """All but σ, at this x and for all W; ‖∇x∇y g‖ is at this W."""
    W, n = y.view(form.shape), form.train.shape[0]
    of_weights, of_penalties = _split(form, x)
    s = _row_weights(form, of_weights)
    c2 = 2 * torch.as_tensor(form.penalty.coefficients(of_penalties, W), dtype=W.dtype)
    norms = _row_norms(form.train)
    parts = list(_cross_parts(form, s, c2, W, norms))
    return {
        "mu": Constant(float(c2.min()), Kind.BOUND, "twice the least penalty"),
        "L_g": Constant(
            0.5 * _largest(form.train, s) + float(c2.max()),
            Kind.BOUND,
            "½ λmax(Σ s_i a_i a_i'/n) by Lanczos, plus twice the greatest penalty",
        ),
        "cross": Constant(math.hypot(*(part[0] for part in parts)), Kind.BOUND, "at this W"),
        "L_fx": Constant(0.0, Kind.EXACT, "f has no x"),
        "L_xx": Constant(0.0, Kind.EXACT, "f has no x"),
        "L_fy": Constant(
            0.5 * _largest(form.validation, None), Kind.BOUND, "½ λmax(Σ a_i a_i'/m) by Lanczos"
        ),
        "M": Constant(
            math.sqrt(2) * float(_row_norms(form.validation).mean()), Kind.BOUND, "√2 Σ ‖a_i‖/m"
        ),
        "rho": Constant(
            float((s * norms**3).sum()) / n / math.sqrt(2), Kind.BOUND, "Σ s_i ‖a_i‖³/(√2 n)"
        ),
        "tau": Constant(math.hypot(*(part[1] for part in parts)), Kind.BOUND, "for all W"),
        "tau_x": Constant(math.hypot(*(part[2] for part in parts)), Kind.BOUND, "at this W"),
    }


def inner_curvature(form: SoftmaxForm) -> float:
    """A bound on ‖∇²y g‖ for all W where no weight exceeds 1 (or what was given) and x's penalties
    are at most exp(0)."""
    given = form.weights if isinstance(form.weights, Tensor) else None
    shape = form.penalty_shape
    zero = None if shape is None else form.zeros(shape)
    c = torch.as_tensor(form.penalty.coefficients(zero, form.zeros(form.shape)))
    return 0.5 * _largest(form.train, given) + 2 * float(c.max())


def _cross_parts(
    form: SoftmaxForm, s: Tensor, c2: Tensor, W: Tensor, norms: Tensor
) -> Iterator[tuple[float, float, float]]:
    """(‖∇x∇y g‖ at W, its Lipschitz constants in W and x), of the weights and the penalties."""
    n = len(norms)
    if form.weighted:
        slope = s * (1 - s)
        P = design(form.train).push(W).softmax(1)
        P[torch.arange(n), form.train_labels] -= 1
        each = P.norm(dim=1) * norms
        yield (
            float((slope * each).norm()) / n,  # the Frobenius norm
            float((slope * 0.5 * norms**2).norm()) / n,
            float((slope * (1 - 2 * s) * each).abs().max()) / n,
        )
    if form.penalty_shape is not None:
        each = c2 * W  # and its own derivative, as c is an exponential
        size = each.norm(dim=1) if len(form.penalty_shape) == 1 else each.abs()
        yield float(size.max()), float(c2.max()), float(size.max())


def _split(form: SoftmaxForm, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    rows = form.train.shape[0] if form.weighted else 0
    shape = form.penalty_shape
    return (x[:rows] if rows else None), (None if shape is None else x[rows:].view(shape))


def _row_weights(form: SoftmaxForm, of_weights: Tensor | None) -> Tensor:
    if of_weights is not None:
        return of_weights.sigmoid()
    if isinstance(form.weights, Tensor):
        return form.weights
    return torch.ones(form.train.shape[0], dtype=form.train.dtype)


def _row_norms(rows: Matrix) -> Tensor:
    if isinstance(rows, StoredRows):
        return torch.cat([torch.linalg.vector_norm(block, dim=1) for _, block in rows.blocks()])
    if rows.layout != torch.strided:
        return torch.as_tensor(scipy_csr(rows).copy().power(2).sum(axis=1)).sqrt()
    found: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return found


def _largest(rows: Matrix, s: Tensor | None) -> float:
    """λmax(Σ s_i a_i a_i'/n), and what Lanczos may be off by."""
    X, n = design(rows), rows.shape[0]
    weights = torch.ones(n, dtype=rows.dtype) if s is None else s

    def product(v: Tensor) -> Tensor:
        return X.pull(X.push(v[:, None]) * weights[:, None] / n)[:, 0]

    found = extreme_eigenvalues(product, torch.empty(rows.shape[1], dtype=rows.dtype), _PRODUCTS)
    return found.largest + found.largest_error
