"""Lanczos against dense eigenvalues."""

import pytest
import torch

from bilevel.theory import extreme_eigenvalues

from ..truth.theory_problems import normal, spectrum_matrix


def random_spd(n, seed=0):
    return spectrum_matrix(torch.Generator().manual_seed(seed), n, 0.1, 30.0)


SMALL = {
    "a diagonal": torch.diag(torch.tensor([1.0, 2.0, 5.0]).double()),
    "a random matrix": random_spd(12),
    "repeated eigenvalues": torch.diag(torch.tensor([2.0] * 5 + [7.0] * 4).double()),
    "the identity": torch.eye(6).double(),
    "one number": torch.tensor([[3.0]]).double(),
    "an indefinite matrix": random_spd(8) - 10 * torch.eye(8).double(),
    "zero": torch.zeros(4, 4).double(),
    "scales that differ by 1e8": torch.diag(torch.logspace(-4, 4, 6).double()),
}


@pytest.mark.parametrize("H", SMALL.values(), ids=SMALL)
def test_enough_steps_give_the_ends_of_the_spectrum(H):
    found, truth = extreme_eigenvalues(lambda v: H @ v, H[0]), torch.linalg.eigvalsh(H)
    slack = 1e-13 * max(1.0, float(truth.abs().max()))
    assert found.smallest == pytest.approx(float(truth[0]), abs=slack)
    assert found.largest == pytest.approx(float(truth[-1]), abs=slack)
    assert max(found.smallest_error, found.largest_error) <= slack


@pytest.mark.parametrize("distinct", [1, 2, 3, 5])
def test_as_many_products_are_asked_for_as_there_are_distinct_eigenvalues(distinct):
    H = torch.diag(torch.arange(1, distinct + 1).repeat(4).double())
    assert extreme_eigenvalues(lambda v: H @ v, H[0]).products == distinct


def test_rounding_of_the_products_is_not_taken_for_one_more_eigenvalue():
    """Else it is chance, and on several processes another chance, how many products a run asks."""
    spectrum = torch.diag(torch.tensor([1.0, 1.1, 1.2, 5.0, 5.1]).double().repeat(8))
    for seed in range(20):
        basis, _ = torch.linalg.qr(normal(torch.Generator().manual_seed(seed), 40, 40))
        H = basis @ spectrum @ basis.T
        assert extreme_eigenvalues(lambda v, H=H: H @ v, H[0]).products == 5


@pytest.mark.parametrize("steps", [1, 2, 4, 8, 16])
def test_an_eigenvalue_is_as_near_as_stated_and_ritz_values_lie_inside_the_spectrum(steps):
    for seed in range(10):
        H = random_spd(40, seed)
        truth = torch.linalg.eigvalsh(H)
        found = extreme_eigenvalues(lambda v, H=H: H @ v, H[0], steps, seed)
        assert found.products == steps
        assert truth[0] - 1e-12 <= found.smallest <= found.largest <= truth[-1] + 1e-12
        for ritz, error in (
            (found.smallest, found.smallest_error),
            (found.largest, found.largest_error),
        ):
            assert (truth - ritz).abs().min() <= error + 1e-12


def test_the_stated_error_falls_as_steps_are_added():
    H = random_spd(60)
    errors = [extreme_eigenvalues(lambda v: H @ v, H[0], m).largest_error for m in (5, 15, 40, 60)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-12 < errors[0]


def test_the_largest_end_is_found_in_a_large_matrix_by_few_products():
    values = torch.cat([normal(torch.Generator().manual_seed(0), 3000).abs(), torch.tensor([9.0])])
    found = extreme_eigenvalues(lambda v: values * v, values, steps=40)
    assert found.largest == pytest.approx(9.0, abs=1e-9)


def test_float32_gives_the_same_ends_up_to_its_rounding():
    H = random_spd(30).float()
    found, truth = extreme_eigenvalues(lambda v: H @ v, H[0]), torch.linalg.eigvalsh(H.double())
    assert found.largest == pytest.approx(float(truth[-1]), abs=1e-5 * 30)
    assert found.smallest == pytest.approx(float(truth[0]), abs=1e-5 * 30)


@pytest.mark.parametrize("steps", [0, -1, 2.5])
def test_a_wrong_number_of_steps_is_quoted(steps):
    with pytest.raises(ValueError, match=f"steps must be an integer of at least 1, got {steps}"):
        extreme_eigenvalues(lambda v: v, torch.ones(2), steps)
