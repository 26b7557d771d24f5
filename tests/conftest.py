"""Fixtures that several test files share."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from .truth import forked

with suppress(ImportError):  # the core's tests run without the extras, too
    import pooch  # noqa: F401  # its logger keeps the stderr that it first sees: not a test's


@pytest.fixture(scope="session", autouse=True)
def forks_end() -> Iterator[None]:
    """No server of forked programs outlives the tests."""
    yield
    forked.stop()


@pytest.fixture(scope="session")
def spd() -> Callable[..., tuple[Tensor, Tensor]]:
    """Random systems H v = b, where H is positive definite with chosen eigenvalues."""

    def make(eigenvalues: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        n = len(eigenvalues)
        basis, _ = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
        H = basis @ torch.diag(eigenvalues.double()) @ basis.T
        return (H + H.T) / 2, torch.randn(n, generator=generator, dtype=torch.float64)

    return make


@pytest.fixture
def clean(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    """`bilevel clean` in an empty folder: a `dirty_tables.Command`."""
    from .apps.cleaning.dirty_tables import Command

    return Command(tmp_path, monkeypatch, capsys)
