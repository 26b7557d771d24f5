"""`check_hypergradient` on a network: right is told from wrong, with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bilevel

from ..truth import networks as truth


def smooth(x: nn.Module, y: nn.Module, batch: Any) -> Tensor:
    """As the truth's, without `detach`: whose gradient is that of a function."""
    losses = truth.each(y, batch)
    ridge = sum(p.square().sum() for p in y.parameters())
    return (x(losses[:, None])[:, 0] * losses).mean() + 0.3 * ridge


def check(method: Any = None, steps: Any = None, **changed: Any) -> bilevel.HypergradientReport:
    return bilevel.check_hypergradient(truth.problem(**changed), truth.weight_net(), method, steps)


def test_itd_through_dropout_and_batch_norm_is_found_right() -> None:
    report = check(inner=smooth)
    assert report.relative_error < 1e-5
    assert len(report.notes) == 1
    assert any("random numbers (of torch)" in note for note in report.notes)
    assert "held fixed" in str(report)


def test_a_truncated_sweep_is_found_wrong() -> None:
    steps = bilevel.inner.Steps(bilevel.updates.Momentum(0.1), 4)
    assert check(bilevel.ITD(truncate=1), steps, inner=smooth).relative_error > 0.05
    assert check(bilevel.ITD(), steps, inner=smooth).relative_error < 1e-5


def test_what_a_loss_detaches_is_told() -> None:
    assert any("g detaches something" in note for note in check().notes)


def test_implicit_differentiation_far_from_the_solution_is_explained() -> None:
    report = check(bilevel.AID(bilevel.linear.CG(5)), bilevel.inner.GradientDescent(2, 0.01))
    assert report.relative_error > 0.05
    assert any(note.startswith("y is not at the inner solution") for note in report.notes)


def test_negative_curvature_is_told() -> None:
    def inner(x: Any, y: nn.Module, batch: Any) -> Tensor:
        return truth.inner(x, y, batch) - sum(p.square().sum() for p in y.parameters())

    steps = bilevel.inner.GradientDescent(2, 0.01)
    assert not any("negative curvature" in note for note in check(None, steps).notes)
    assert any("negative curvature" in note for note in check(None, steps, inner=inner).notes)


def test_a_detached_loss_is_told() -> None:
    def detached(x: nn.Module, y: nn.Module, batch: Any) -> Tensor:
        weights = x(torch.ones(1, 1).double()).detach()
        return (weights * truth.each(y, batch)).mean() + 0 * x[0].bias.sum()

    assert any("exactly zero" in note for note in check(inner=detached).notes)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3, 12)

    def forward(self, rows: Tensor) -> Tensor:
        q, k, v = self.map(rows).reshape(1, 1, -1, 12).split(4, -1)
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION):
            return nn.functional.scaled_dot_product_attention(q, k, v)[0, 0, :, :2]


def test_attention_without_a_second_derivative_is_named_with_its_remedy() -> None:
    with pytest.raises(ValueError, match=r"SDPBackend\.MATH"):
        check(y0=Attention().double())


def test_methods_of_first_derivatives_are_checked_where_there_is_no_second() -> None:
    net, steps = Attention().double(), bilevel.inner.Steps(bilevel.updates.Descent(0.1), 1)
    darts = bilevel.hypergradients.FiniteDifferences(bilevel.AID(bilevel.linear.Identity(0.1)))
    for method in (darts, bilevel.hypergradients.LastStep()):
        report = check(method, steps, y0=net)
        assert "a layer has no second derivative" in report.notes[0]
        assert report.relative_error < 1


def test_what_a_method_leaves_out_is_told() -> None:
    steps = bilevel.inner.Steps(bilevel.updates.Momentum(0.1), 4)
    for method in (bilevel.ITD(truncate=1), bilevel.hypergradients.SAMA()):
        assert any("differentiates the last 1 of" in note for note in check(method, steps).notes)
    assert not any("differentiates the last" in note for note in check(None, steps).notes)
    series = bilevel.AID(bilevel.linear.Neumann(1, 0.01))
    assert any("linear solve leaves 9" in note for note in check(series, steps).notes)
