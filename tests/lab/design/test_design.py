"""The design studies: their instrument against dense truths and the library, and their verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from bilevel.linear import SampledNeumann

from bilevel.errors import UserError
from bilevel.lab.design import job
from bilevel.lab.design.estimator import RowSystem, variance
from bilevel.lab.design.studies import STUDIES, Study


@pytest.mark.parametrize("kappa", [3.0, 20.0])
def test_every_row_has_curvature_one_and_the_mean_has_its_mu(kappa: float) -> None:
    system = RowSystem.drawn(kappa, seed=3)
    row = system.mu * np.eye(8) + (1 - system.mu) * np.outer(system.a[0], system.a[0])
    assert np.linalg.eigvalsh(row).max() == pytest.approx(1.0)
    assert np.linalg.eigvalsh(system.hessian).min() >= 1 / kappa
    assert np.linalg.norm(system.b, axis=1).max() == pytest.approx(1.0)


def test_the_mean_of_many_estimates_is_the_truncated_series() -> None:
    system = RowSystem.drawn(4.0, seed=1)
    drawn = system.estimates([8, 4, 2], 1.0, outer=20, draws=20_000, seed=0)
    expected = system.expectation(3, 1.0)
    deviation = np.sqrt(variance(drawn) / len(drawn))
    assert np.linalg.norm(drawn.mean(0) - expected) < 4 * deviation
    long = system.expectation(400, 1.0)
    np.testing.assert_allclose(long, system.solution, rtol=1e-9)


def test_all_rows_give_the_series_of_the_library() -> None:
    """One row is all rows: then Algorithm 3 has no noise, here and in `bilevel.linear`."""
    drawn = RowSystem.drawn(4.0, seed=2, rows=1)
    ours = drawn.estimates([1, 1, 1], 0.5, outer=None, draws=1, seed=0)[0]
    H, b = torch.from_numpy(drawn.hessian), torch.from_numpy(drawn.gradient)
    r, total = b, b.clone()
    for _ in SampledNeumann(terms=3, lr=0.5, batch=1).batch_sizes(1, 0.5):
        r = r - 0.5 * H @ r
        total = total + r
    np.testing.assert_allclose(ours, 0.5 * total.numpy(), rtol=1e-12)


def halves(seed: int) -> dict[str, tuple[tuple[float, bool], tuple[float, bool]]]:
    return {"a half": ((1.0 + 0.001 * seed, True), (2.0, True))}


def test_a_study_is_measured_once_a_seed_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(seed: int) -> dict[str, tuple[tuple[float, bool], tuple[float, bool]]]:
        calls.append(seed)
        return halves(seed)

    monkeypatch.setattr(job, "STUDIES", (Study("half", "a half is less", "costs", counted),))
    (row,) = job.judge(job.measure(tmp_path, "bilevel reproduce design"))
    assert (row.verdict, row.seeds) == ("confirmed", len(job.SEEDS))
    assert "a half × 1.95 [" in row.effect
    stored = json.loads((tmp_path / job.FILE).read_text())
    del stored["studies"]["half"]["13"]
    (tmp_path / job.FILE).write_text(json.dumps(stored))
    assert job.judge(job.measure(tmp_path, "again")) == [row]
    assert calls == [*job.SEEDS, 13]
    monkeypatch.setattr(job, "STUDIES", (Study("half", "", "other costs", counted),))
    with pytest.raises(UserError, match="other studies"):
        job.measure(tmp_path, "again")


def test_equal_batches_never_have_fewer_rows_and_decaying_ones_less_variance() -> None:
    (study,) = (study for study in STUDIES if study.name == "hessian-batches")
    pairs = study.measure(0)
    (ours, _), (rival, _) = pairs["κ = 20, Q = 60"]
    assert 1.5 < rival / ours < 5


def test_the_bounds_hold() -> None:
    (study,) = (study for study in STUDIES if study.name == "bounds")
    for (measured, _), (bound, _) in study.measure(0).values():
        assert measured < bound
