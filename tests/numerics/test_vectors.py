"""Sums over long vectors."""

import math

import pytest
import torch

from bilevel.numerics.vectors import dot, norm

SIZES = [1, 2**16, 2**16 + 1, 2**17, 2_000_003]


@pytest.fixture(params=["torch", "one thread", "two threads"])
def way(request, monkeypatch):
    """By torch's operations, as where numba is not installed, or by a kernel."""
    if request.param == "torch":
        monkeypatch.setattr("bilevel.kernels.usable", lambda: False)
    else:
        pytest.importorskip("numba")
    before = torch.get_num_threads()
    torch.set_num_threads(2 if request.param == "two threads" else 1)
    yield request.param
    torch.set_num_threads(before)


def pair(size, dtype):
    generator = torch.Generator().manual_seed(size)
    return [torch.rand(size, generator=generator).to(dtype) - 0.3 for _ in range(2)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_sums_keep_their_digits(way, size, dtype, digits):
    a, b = pair(size, dtype)
    truth = math.fsum((a.double() * b.double()).tolist())
    size_of_terms = float((a * b).abs().double().sum())
    long = size > 2**16 and dtype == torch.float32
    allowed = 1e-12 if long and way != "torch" else 2e-8 if long else digits
    assert abs(dot(a, b) - truth) <= allowed * size_of_terms
    assert norm(a) == pytest.approx(float(a.double().norm()), rel=max(allowed, 1e-13))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_seen(way, bad):
    a, b = pair(2**17, torch.float32)
    a[70_000] = bad
    assert not math.isfinite(dot(a, b))
    assert not math.isfinite(norm(a))


def test_other_numbers_than_kernels_know_are_left_to_torch(way):
    a, b = pair(2**17, torch.bfloat16)
    assert dot(a, b) == pytest.approx(float(a.double() @ b.double()), rel=0.05)
