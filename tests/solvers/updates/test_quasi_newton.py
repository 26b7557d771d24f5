"""L-BFGS's metric against the dense BFGS formula."""

from __future__ import annotations

import torch
from bilevel.updates import Look, QuasiNewton


def test_the_metric_is_that_of_dense_bfgs() -> None:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    H = A @ A.T + torch.eye(4, dtype=torch.float64)
    s = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    z = s @ H
    eye = torch.eye(4, dtype=torch.float64)
    B = eye * float(s[-1] @ z[-1] / (z[-1] @ z[-1]))
    for a, b in zip(s, z, strict=True):
        V = eye - torch.outer(b, a) / (a @ b)
        B = V.T @ B @ V + torch.outer(a, a) / (a @ b)
    x, g = torch.ones(4, dtype=torch.float64), torch.arange(4.0, dtype=torch.float64)
    moved, memory = QuasiNewton(0.5, {"s": s, "z": z}).apply(x, g, {}, Look())
    torch.testing.assert_close(moved, x - 0.5 * B @ g)
    assert memory == {}


def test_a_pair_whose_square_is_zero_in_single_precision_sets_no_scale() -> None:
    s, z = torch.tensor([[1.0, 0.0]]), torch.tensor([[1e-30, 0.0]])
    moved, _ = QuasiNewton(1.0, {"s": s, "z": z}).apply(
        torch.zeros(2), torch.tensor([1e-30, 1e-30]), {}, Look()
    )
    torch.testing.assert_close(moved, torch.tensor([-1.0, -1e-30]), atol=0, rtol=1e-6)


def test_without_pairs_it_is_descent() -> None:
    moved, _ = QuasiNewton(0.5).apply(torch.ones(2), torch.tensor([1.0, 2.0]), {}, Look())
    assert moved.tolist() == [0.5, 0.0]
