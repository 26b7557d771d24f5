"""Convolutions by tiles: the numbers of torch's, for every shape that may come."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ...truth.dense_truth import relative

pytest.importorskip("numba")
from bilevel.models.heads.convolutions import ByTiles, ByTorch, convolution

NUMBERS = st.integers(min_value=1, max_value=9)


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def errors(images, height, width, channels, filters, dtype=torch.float64):
    """Of Z, ∂w and ∂A, against torch's in double precision."""
    A, w = random(images, height, width, channels), random(filters, channels, 3, 3)
    of_Z, of_A, truth = random(images, height, width, filters), torch.empty_like(A), ByTorch(w)
    wanted = torch.empty_like(of_A)
    exact = truth.forward(A), truth.back(of_Z, A, wanted), wanted
    A, w, of_Z, of_A = (tensor.to(dtype) for tensor in (A, w, of_Z, of_A))
    tiles = ByTiles(w)
    found = tiles.forward(A), tiles.back(of_Z, A, of_A), of_A
    assert all(tensor.dtype == dtype for tensor in found)
    return [relative(ours.double(), theirs) for ours, theirs in zip(found, exact, strict=True)]


@settings(max_examples=40, deadline=None)
@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from([8, 16]), st.sampled_from([8, 24]))
def test_in_double_precision_they_are_those_of_torch(images, height, width, channels, filters):
    assert max(errors(images, height, width, channels, filters)) < 1e-13


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("shape", [(1, 1, 1, 8, 8), (3, 13, 11, 16, 8), (20, 8, 8, 8, 24)])
def test_threads_share_the_tiles(threads, shape):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert max(errors(*shape)) < 1e-13
    finally:
        torch.set_num_threads(before)


def test_in_single_precision_they_are_as_near_the_truth_as_torchs():
    A, w, of_Z = random(50, 16, 16, 64), random(64, 64, 3, 3), random(50, 16, 16, 64)
    truth = ByTorch(w).forward(A), ByTorch(w).back(of_Z, A, None)
    A, w, of_Z = A.float(), w.float(), of_Z.float()
    ours, theirs = (
        [
            relative(found.double(), exact)
            for found, exact in zip((of.forward(A), of.back(of_Z, A, None)), truth, strict=True)
        ]
        for of in (ByTiles(w), ByTorch(w))
    )
    assert max(ours) < 1e-6
    assert all(mine < 2 * other for mine, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    ("filters", "channels", "dtype", "kind"),
    [
        (64, 3, torch.float32, ByTorch),
        (24, 32, torch.float32, ByTorch),
        (16, 32, torch.float32, ByTiles),
        (24, 8, torch.float64, ByTiles),
    ],
)
def test_tiles_are_for_channels_that_fill_registers(filters, channels, dtype, kind):
    assert type(convolution(random(filters, channels, 3, 3, dtype=dtype))) is kind


def test_what_is_not_finite_is_seen():
    A = random(1, 4, 4, 8)
    A[0, 0, 0, 0] = float("nan")
    assert not ByTiles(random(8, 8, 3, 3)).forward(A)[0, 0, 0].isfinite().any()
