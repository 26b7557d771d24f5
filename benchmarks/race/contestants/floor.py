"""What the mathematics needs at the least. These give no answer and are never ranked."""

from __future__ import annotations

from collections.abc import Callable

import torch

from race.case import Case
from race.contestants.torch_by_hand import Losses

SIDE = 1024  # of square factors, at which the processor's matrix product is at its best


def passes(case: Case) -> float:
    """How often X must be read: D gradients, N products with their linearisation, cross.

    X·W and X'·R of one derivative may share a pass; the cross product needs one of its own.
    """
    validation = float(case.V.shape[0] / case.X.shape[0])
    if "N" in case.settings:
        return case.count("D") + case.count("N") + 1 + validation
    return 2 * case.count("D") + validation


def reading(case: Case) -> Callable[[], None]:
    """X read so often."""
    X, times = torch.from_numpy(case.X), round(passes(case))

    def run() -> None:
        for _ in range(times):
            X.sum()

    return run


def arithmetic(case: Case) -> Callable[[], None]:
    """The multiplications at the processor's best rate, by square matrix products."""
    A = torch.rand(SIDE, SIDE)
    multiplications = 2 * passes(case) * case.X.shape[0] * case.X.shape[1] * case.classes
    times = multiplications / SIDE**3
    part = torch.rand(SIDE, max(1, round(SIDE * (times % 1))))

    def run() -> None:
        for _ in range(int(times)):
            A @ A
        A @ part

    return run


def products(case: Case) -> Callable[[], None]:
    """The bare products X·W and X'·R of the implicit method, in torch's CSR form."""
    losses, W = Losses(case), torch.rand(case.shape)
    R = torch.rand(case.X.shape[0], case.classes)
    push, pull, _ = losses.train.all()
    times = case.count("D") + case.count("N")

    def run() -> None:
        for _ in range(times):
            push(W)
            pull(R)
        push(W)

    return run


def batch_products(case: Case) -> Callable[[], None]:
    """The bare products on rows that were gathered before; no softmax, no updates of W."""
    losses, W = Losses(case), torch.rand(case.shape)
    batches = [
        (*losses.train.take(torch.from_numpy(batch))[:2], torch.rand(len(batch), case.classes))
        for rows in case.rows
        for role in ("inner", "hessian")
        for batch in rows[role]
    ]

    def run() -> None:
        for push, pull, R in batches:
            push(W)
            pull(R)

    return run
