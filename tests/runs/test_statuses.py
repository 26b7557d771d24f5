"""The word for how a run ended holds: a small estimate alone is not convergence."""

from __future__ import annotations

import bz2
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bilevel.inner import NewtonCG
from bilevel.linear import CG
from torch import Tensor

import bilevel
from bilevel import updates
from bilevel.algorithms import BSA, HOAG, AIDBiO, ITDBiO, StocBiO
from bilevel.runs.status import Status, describe

from ..truth.quadratics import quadratic
from ..truth.small_problems import softmax
from ..truth.stationarity import assert_true, flat, phi, true_norm

GOOD: dict[str, Any] = {"inner_steps": 2, "inner_lr": 0.5, "cg_steps": 2}


def one(x0: float, y0: float = 0.0) -> bilevel.Problem:
    """Φ = (2x − 1)² + 1, least at x = ½."""
    return bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum() + 1,
        inner=lambda x, y: (y - 2 * x).square().sum(),
        x0=torch.tensor([x0], dtype=torch.float64),
        y0=torch.tensor([y0], dtype=torch.float64),
    )


# The x that is returned is the x that was looked at


@pytest.mark.parametrize(
    "outer", [updates.Adam(0.5), updates.Momentum(0.1, 0.9), updates.Momentum(0.2, 0.8)], ids=str
)
@pytest.mark.parametrize("tol", [1e-3, 1e-1])
def test_with_a_memory_outside_the_x_that_was_tested_is_returned(outer: Any, tol: float) -> None:
    """One step later, such an update has carried x away again."""
    problem = one(5.0)
    result = bilevel.minimize(problem, AIDBiO(**GOOD, outer=outer), steps=2000, tol=tol)
    assert assert_true(problem, result, tol) == "converged"
    assert result.history[-1].hypergradient_norm <= tol
    assert true_norm(problem, result) == pytest.approx(
        result.history[-1].hypergradient_norm, abs=1e-6
    )


def test_of_a_converged_run_the_state_is_where_it_goes_on_from() -> None:
    algorithm = AIDBiO(**GOOD, outer=updates.Adam(0.5))
    result = bilevel.minimize(one(5.0), algorithm, steps=2000, tol=1e-1)
    k = result.state.step
    unaware = bilevel.minimize(one(5.0), algorithm, steps=k)
    assert torch.equal(result.state.x, unaware.state.x)
    assert not torch.equal(result.state.x, result.x)
    before = bilevel.minimize(one(5.0), algorithm, steps=k - 1)
    assert torch.equal(result.x, before.state.x)


# A small estimate where y is far from y*(x)


def test_one_tiny_inner_step_is_not_convergence() -> None:
    problem = one(5.0)
    algorithm = AIDBiO(inner_steps=1, inner_lr=1e-6, cg_steps=5, outer_lr=0.1)
    result = bilevel.minimize(problem, algorithm, steps=300, tol=1e-3)
    assert assert_true(problem, result, 1e-3) != "converged"
    still = AIDBiO(inner_steps=1, inner_lr=1e-6, cg_steps=5)
    assert assert_true(problem, bilevel.minimize(problem, still, tol=1e-3), 1e-3) != "converged"


def test_a_start_at_the_optimum_of_f_is_not_convergence() -> None:
    problem = one(0.0, y0=1.0)
    algorithm = AIDBiO(inner_steps=1, inner_lr=1e-7, cg_steps=5)
    result = bilevel.minimize(problem, algorithm, steps=20, tol=1e-3)
    assert assert_true(problem, result, 1e-3) == "doubtful"
    assert "inner_lr" in result.message
    assert "Accurate solves at the same x find 4" in result.message
    assert assert_true(problem, bilevel.minimize(problem, AIDBiO(), tol=1e-3), 1e-3) == "converged"


@pytest.mark.parametrize("settings", [{"inner_steps": 1}, {"truncate": 0}], ids=str)
def test_a_structural_zero_is_not_convergence(settings: dict[str, Any]) -> None:
    """From W = 0 the cross derivative vanishes, and with it what one step can see."""
    problem = softmax()
    result = bilevel.minimize(problem, ITDBiO(**settings), steps=20, tol=1e-4)
    assert assert_true(problem, result, 1e-4) != "converged"


def quartic() -> bilevel.Problem:
    three = torch.full((1,), 3.0, dtype=torch.float64)
    return bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum() / 2,
        inner=lambda x, y: ((y - x) ** 4 / 4 + 0.005 * y**2).sum(),
        x0=three,
        y0=three,
    )


def scaled_features() -> bilevel.Problem:
    form: Any = softmax().model
    form = form.form
    return bilevel.softmax_problem(
        (0.1 * form.train, form.train_labels),
        (0.1 * form.validation, form.validation_labels),
        penalty=bilevel.PerFeature(),
        classes=3,
    )


@pytest.mark.parametrize("make", [quartic, scaled_features])
@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_an_inner_tolerance_that_the_start_satisfies_is_not_convergence(
    make: Any, tol: float
) -> None:
    problem = make()
    assert_true(problem, bilevel.minimize(problem, HOAG(), steps=40, tol=tol), tol)


# Noise and bias


@pytest.mark.parametrize("seed", range(4))
def test_one_lucky_batch_is_not_convergence(seed: int) -> None:
    problem = softmax(30, weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.05))
    result = bilevel.minimize(problem, BSA(neumann_terms=12), steps=200, tol=1e-3, seed=seed)
    assert any(record.hypergradient_norm <= 1e-3 for record in result.history)
    assert assert_true(problem, result, 1e-3) != "converged"


def ridge(penalties: int) -> bilevel.Problem:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    X, w = normal(80, 20), normal(20) * (torch.arange(20) < 5)
    b = X @ w + normal(80)

    def fit(y: Tensor, batch: bilevel.Batch) -> Tensor:
        return (batch.data[0] @ y - batch.data[1]).square().mean()

    return bilevel.Problem(
        outer=lambda x, y, batch: fit(y, batch),
        inner=lambda x, y, batch: fit(y, batch) + (x.exp() * y.square()).sum(),
        x0=torch.zeros(penalties, dtype=torch.float64),
        y0=torch.zeros(20, dtype=torch.float64),
        inner_data=(X[:40], b[:40]),
        outer_data=(X[40:], b[40:]),
    )


BIASED = {
    "softmax": softmax,
    "ridge with one penalty": lambda: ridge(1),
    "ridge with twenty": lambda: ridge(20),
    "a quadratic of κ = 10": lambda: quadratic(10.0).problem(),
    "a quadratic of κ = 100": lambda: quadratic(100.0).problem(),
}


@pytest.mark.parametrize("kind", BIASED)
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_the_bias_of_few_unrolled_steps_is_not_convergence(kind: str, tol: float) -> None:
    problem = BIASED[kind]()
    assert_true(problem, bilevel.minimize(problem, ITDBiO(), steps=150, tol=tol), tol)


@pytest.mark.parametrize("kappa", [1e2, 1e3, 1e4])
def test_no_run_ends_far_above_its_start_without_a_word(kappa: float) -> None:
    problem = quadratic(kappa).problem()
    result = bilevel.minimize(problem, ITDBiO(), steps=100)
    assert_true(problem, result, 0.0)
    x, y = flat(problem, result)
    assert phi(problem, x, y) <= 1.01 * phi(problem, problem.x0, problem.y0)


# Inner losses that are not strongly convex


def test_negative_curvature_is_not_convergence() -> None:
    """At y = 0, a maximum of g, CG ends at once with nothing."""
    problem = bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum(),
        inner=lambda x, y: (-(y**2) + y**4 / 4).sum() + 0 * x.sum(),
        x0=torch.ones(2, dtype=torch.float64),
        y0=torch.zeros(2, dtype=torch.float64),
    )
    algorithm = AIDBiO(inner_steps=1, inner_lr=0.1, cg_steps=5, outer_lr=0.1)
    result = bilevel.minimize(problem, algorithm, steps=10, tol=1e-3)
    assert result.status == "doubtful"
    assert "not strongly convex" in result.message
    assert "add a ridge" in result.message


@pytest.mark.parametrize("algorithm", [ITDBiO(), AIDBiO(), HOAG()], ids=["itd", "aid", "hoag"])
def test_a_double_well_ends_with_a_true_word_and_finite_numbers(algorithm: Any) -> None:
    problem = bilevel.Problem(
        outer=lambda x, y: (y - 2).square().sum(),
        inner=lambda x, y: (y**4 / 4 - y**2 / 2 - 0.1 * x * y).sum(),
        x0=torch.zeros(1, dtype=torch.float64),
        y0=torch.full((1,), 0.05, dtype=torch.float64),
    )
    result = bilevel.minimize(problem, algorithm, steps=60, tol=1e-6)
    assert_true(problem, result, 1e-6)
    assert result.y.abs().max() < 100


def test_a_singular_hessian_is_not_convergence() -> None:
    """g does not see the second coordinate of y, and f does."""
    problem = bilevel.Problem(
        outer=lambda x, y: ((y - x) ** 2).sum() + y[1],
        inner=lambda x, y: (y[0] - x.sum()) ** 2,
        x0=torch.ones(2, dtype=torch.float64),
        y0=torch.zeros(2, dtype=torch.float64),
    )
    algorithm = AIDBiO(inner_steps=10, inner_lr=0.2, cg_steps=5, outer_lr=0.1)
    for tol in (1e-2, 1e2):
        result = bilevel.minimize(problem, algorithm, steps=100, tol=tol)
        assert result.status in ("doubtful", "diverged")
        assert result.x.isfinite().all()
        assert "ridge" in result.message


# Divergence while all is finite


def test_growth_is_divergence_and_the_best_point_is_kept() -> None:
    problem = one(5.0)
    result = bilevel.minimize(problem, AIDBiO(**GOOD, outer_lr=0.6), steps=100)
    assert assert_true(problem, result, 0.0) == "diverged"
    assert len(result.history) < 60
    assert "the hypergradient's norm is" in result.message
    assert "in the first 10 steps" in result.message
    assert "outer_lr" in result.message
    assert torch.equal(result.x, problem.x0)
    assert result.state.x.abs() > 1e6  # where it would go on from


def test_of_a_run_that_gets_better_first_the_best_point_is_kept() -> None:
    problem = one(5.0)

    def lr(k: int) -> float:
        return 0.05 if k < 10 else 0.9

    result = bilevel.minimize(problem, AIDBiO(**GOOD, outer_lr=lr), steps=200)
    assert assert_true(problem, result, 0.0) == "diverged"
    assert (result.x - 0.5).abs() < 0.05
    assert float(result.y) == pytest.approx(2 * float(result.x), abs=1e-6)


def test_a_start_at_the_solution_is_no_divergence() -> None:
    """Where the first norms are rounding, growth to a usual size is none."""
    result = bilevel.minimize(one(0.5, 1.0), AIDBiO(**GOOD, outer_lr=0.1), steps=50)
    assert result.status == "step_limit"


# Callbacks and metrics


@pytest.mark.parametrize("yes", [True, np.True_, torch.tensor(True), 1], ids=repr)
def test_any_true_answer_of_a_callback_stops_the_run(yes: Any) -> None:
    result = bilevel.minimize(one(5.0), AIDBiO(), steps=20, callbacks=[lambda progress: yes])
    assert (result.status, result.state.step) == ("stopped", 1)


@pytest.mark.parametrize("no", [None, False, np.False_, torch.tensor(False), 0], ids=repr)
def test_any_other_answer_does_not(no: Any) -> None:
    algorithm = AIDBiO(outer_lr=1e-3)
    result = bilevel.minimize(one(5.0), algorithm, steps=5, callbacks=[lambda progress: no])
    assert (result.status, result.state.step) == ("step_limit", 5)


async def later(progress: bilevel.Progress) -> bool:
    return False


@pytest.mark.filterwarnings("ignore:coroutine 'later' was never awaited")
@pytest.mark.parametrize(
    "callback",
    [
        later,
        lambda progress: (i for i in range(3)),
        lambda progress: torch.tensor([True, False]),
        lambda progress: np.ones(2),
    ],
    ids=["async", "generator", "tensor", "array"],
)
def test_an_answer_that_is_neither_is_refused(callback: Any) -> None:
    """The first two would be true, and end the run after a step."""
    with pytest.raises(TypeError, match="a callback must return True, False or None, got"):
        bilevel.minimize(one(5.0), AIDBiO(), callbacks=[callback])


def test_a_metric_or_callback_that_works_in_place_moves_nothing() -> None:
    def scribble(x: Tensor, y: Tensor) -> float:
        x.fill_(7.0)
        y.clamp_(min=9.0)
        return 0.0

    def callback(progress: bilevel.Progress) -> None:
        for point in (progress.x, progress.y, *progress.state.points.values()):
            point.fill_(7.0)

    usual: dict[str, Any] = {"steps": 5, "tol": 1e-12}
    plain = bilevel.minimize(one(5.0), AIDBiO(), **usual)
    found = bilevel.minimize(
        one(5.0), AIDBiO(), metrics={"m": scribble}, callbacks=[callback], **usual
    )
    assert torch.equal(found.x, plain.x)
    assert torch.equal(found.y, plain.y)
    assert torch.equal(found.state.points["v"], plain.state.points["v"])


# The field's benchmark

_IJCNN1 = Path(os.environ.get("BILEVEL_DATA", "absent")) / "ijcnn1"


def _rows(name: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    (file,) = _IJCNN1.glob(f"*{name}*")
    X, labels = np.zeros((most, 22)), np.zeros(most, dtype=int)
    with bz2.open(file, "rt") as lines:
        for row, line in zip(range(most), lines, strict=False):
            label, *entries = line.split()
            labels[row] = float(label) > 0
            for entry in entries:
                column, value = entry.split(":")
                X[row, int(column) - 1] = float(value)
    return X, labels


@pytest.mark.skipif(not _IJCNN1.is_dir(), reason="BILEVEL_DATA has no ijcnn1")
@pytest.mark.parametrize("tol", [1e-4, 1e-5])
def test_a_series_that_is_too_short_is_not_convergence(tol: float) -> None:
    """As W = (−w/2, w/2) with ξ = x + log 44, on the first rows of each file."""
    start = np.random.default_rng(0).uniform(size=22)
    problem = bilevel.softmax_problem(
        _rows("trn", 3000), _rows("tst", 2000), penalty=bilevel.PerFeature(), classes=2
    )
    x0 = torch.from_numpy(np.log(start) + np.log(44))
    algorithm = StocBiO()
    oracle = bilevel.oracles.make(problem, 0)
    state = algorithm.init(oracle, x0, problem.y0)
    result = bilevel.minimize(problem, algorithm, steps=200, tol=tol, state=state)
    if result.status == "converged":
        accurate = bilevel.hypergradient(
            problem, result.x, result.y, bilevel.AID(CG(5000, 1e-10)), NewtonCG(1e-9, 200, 5000)
        )
        assert accurate.value.norm() <= 1.2 * tol
    assert min(record.hypergradient_norm for record in result.history) < 1e-2


@pytest.mark.parametrize(
    ("status", "told"), [(Status.CONVERGED, False), (Status.STEP_LIMIT, True)], ids=str
)
def test_a_verified_end_does_not_doubt_the_line_searches_before_it(
    status: Status, told: bool
) -> None:
    result = bilevel.minimize(quadratic().problem(), AIDBiO(), steps=1)
    stalled = [replace(record, report={"inner_status": "stalled"}) for record in result.history]
    assert ("found no lower point" in describe(status, stalled, 1, 1e-3)) is told
