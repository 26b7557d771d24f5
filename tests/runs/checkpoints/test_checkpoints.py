"""`minimize(..., checkpoint=FOLDER)`: a run goes on, and what its folder holds."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bilevel.cleaning import clean
from bilevel.penalties import learn_penalties

import bilevel
from bilevel import updates
from bilevel.algorithms import AIDBiO, Algorithm, StocBiO, registry
from bilevel.durable import sealed
from bilevel.durable.lock import locked
from bilevel.durable.store import Store
from bilevel.errors import UserError

from ...truth.quadratics import noisy_sum, quadratic
from .kept_runs import PowerFailureError, assert_same, fail_at, kept

# Going on


def with_adam(name: str) -> Algorithm:
    """An algorithm with a memory of its own outside is taken as it is."""
    entry = registry()[name]
    takes = "outer" in (field.name for field in fields(entry.algorithm))  # type: ignore[arg-type]
    return entry.make(**({"outer": updates.Adam(0.1), "outer_lr": None} if takes else {}))


@pytest.mark.parametrize("name", registry())
def test_a_run_that_was_broken_off_ends_with_the_bits_of_one_that_was_not(
    name: str, tmp_path: Path
) -> None:
    """Once after its first step, and once more later."""
    arguments = {"algorithm": with_adam(name), "evaluate_every": 2, "steps": 5}
    for cut in (1, 4):
        with pytest.raises(PowerFailureError):
            kept(tmp_path, callbacks=[fail_at(cut)], **arguments)
        newest = sealed.read(Store(tmp_path).files()[-1])["past"]["state"]
        assert newest["step"] == cut - 1
    assert_same(kept(tmp_path, **arguments), kept(tmp_path / "whole", **arguments))


@pytest.mark.parametrize("algorithm", [AIDBiO(), StocBiO(batch=5)], ids=["aid-bio", "stocbio"])
def test_what_a_run_has_measured_for_itself_goes_on(algorithm: Any, tmp_path: Path) -> None:
    with pytest.raises(PowerFailureError):
        kept(tmp_path, algorithm=algorithm, callbacks=[fail_at(4)])
    unbroken = kept(tmp_path / "whole", algorithm=algorithm)
    assert_same(kept(tmp_path, algorithm=algorithm), unbroken)


def test_any_torch_optimiser_goes_on(tmp_path: Path) -> None:
    def rmsprop(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5)

    algorithm = AIDBiO(inner_steps=5, inner_lr=0.4, outer=updates.TorchOptimizer(rmsprop, 0.01))
    with pytest.raises(PowerFailureError):
        kept(tmp_path, algorithm=algorithm, callbacks=[fail_at(4)])
    unbroken = kept(tmp_path / "whole", algorithm=algorithm)
    assert_same(kept(tmp_path, algorithm=algorithm), unbroken)


def test_a_run_that_has_ended_is_not_run_again(tmp_path: Path) -> None:
    first = kept(tmp_path, tol=1e-2, steps=500)
    assert first.status == "converged"
    before = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    again = kept(tmp_path, tol=1e-2, steps=500, callbacks=[pytest.fail])
    assert_same(first, again)
    assert [r.seconds for r in first.history] == [r.seconds for r in again.history]
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("less", "more"),
    [({"steps": 5}, {"steps": 9}), ({"tol": 1e-1}, {"tol": 1e-3}), ({"seconds": 1e-9}, {})],
)
def test_wider_limits_go_on_as_if_they_had_been_given_at_once(
    less: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    usual = {"steps": 40, "evaluate_every": 3, "metrics": {"one": lambda x, y: 1.0}}
    kept(tmp_path, **{**usual, **less})
    assert_same(kept(tmp_path, **{**usual, **more}), kept(tmp_path / "whole", **{**usual, **more}))


def test_fewer_steps_than_were_done_are_an_error(tmp_path: Path) -> None:
    kept(tmp_path)
    with pytest.raises(ValueError, match=r"is at step 6 already: steps must .*got 5"):
        kept(tmp_path, steps=5)


def test_a_diverged_or_stopped_run_stays_so_whatever_the_limits(tmp_path: Path) -> None:
    wild = AIDBiO(inner=bilevel.inner.NewtonCG(1e-6), cg_steps=5, outer_lr=1e100)
    first = kept(tmp_path / "wild", quadratic(4.0).problem(), algorithm=wild, steps=50)
    again = kept(tmp_path / "wild", quadratic(4.0).problem(), algorithm=wild, steps=60)
    assert first.status == "diverged"
    assert_same(first, again)
    stopped = kept(tmp_path / "stopped", callbacks=[lambda progress: progress.record.step == 2])
    assert_same(stopped, kept(tmp_path / "stopped", steps=50))


def test_seconds_go_on(tmp_path: Path) -> None:
    clock = itertools.count(step=10.0)
    first = kept(tmp_path, steps=2, clock=lambda: next(clock))
    assert [record.seconds for record in first.history] == [10, 20]
    whole = kept(tmp_path, steps=4, clock=lambda: next(clock))
    assert [record.seconds for record in whole.history] == [10, 20, 30, 40]
    assert whole.seconds == 40


def test_after_a_result_its_history_counts_and_seconds_go_on() -> None:
    problem = noisy_sum(10).problem()
    usual: dict[str, Any] = {"seed": 3, "evaluate_every": 2}
    algorithm = StocBiO(batch=4, inner_steps=3, inner_lr=0.2, neumann_lr=0.2)
    first = bilevel.minimize(problem, algorithm, steps=3, **usual)
    second = bilevel.minimize(problem, algorithm, steps=6, after=first.past, **usual)
    assert_same(second, bilevel.minimize(problem, algorithm, steps=6, **usual))
    assert len(first.history) == 3
    assert second.history[3].seconds > first.seconds == first.history[-1].seconds
    with pytest.raises(ValueError, match="give state or after, not both"):
        bilevel.minimize(problem, algorithm, after=first.past, state=first.state)


@pytest.mark.parametrize("cut", [2, -1])
def test_cleaning_goes_on_with_its_patience_and_its_best_weights(cut: int, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(150) % 3
    rows = torch.eye(3)[labels] + 0.3 * torch.randn(150, 3, generator=generator)
    noisy = (labels[:100] + (torch.arange(100) < 10)) % 3
    data = rows[:100], noisy, rows[100:], labels[100:]
    usual: dict[str, Any] = {"checkpoint": tmp_path, "checkpoint_every": 0}
    whole = clean(*data)
    steps = range(len(whole.held_back_loss) + 1)
    assert len(steps) > 4
    with pytest.raises(PowerFailureError):
        clean(*data, callbacks=[fail_at(steps[cut])], **usual)
    broken, again = clean(*data, **usual), clean(*data, **usual)
    for found in (broken, again):
        assert found.held_back_loss == whole.held_back_loss
        for name in ("weights", "label_quality", "flagged", "coefficients"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
        assert found.result.status == whole.result.status == "stopped"
    with pytest.raises(UserError, match="patience was 2, is 5"):
        clean(*data, patience=5, **usual)


def test_learned_penalties_go_on(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(200) % 2
    features = random.normal(size=(200, 5))
    features[:, 0] += 2 * labels
    with pytest.raises(PowerFailureError):
        learn_penalties(features, labels, callbacks=[fail_at(2)], checkpoint=tmp_path)
    broken = learn_penalties(features, labels, checkpoint=tmp_path)
    whole = learn_penalties(features, labels)
    assert broken.held_back_loss == whole.held_back_loss
    np.testing.assert_array_equal(broken.coefficients, whole.coefficients)


# What is in the folder


def test_the_last_two_are_kept_and_load_as_plain_data(tmp_path: Path) -> None:
    result = kept(tmp_path)
    files = Store(tmp_path).files()
    assert [file.name for file in files] == ["step-000000000005.pt", "step-000000000006.pt"]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "history.jsonl", *files]
    content = torch.load(files[-1], weights_only=True)
    assert content["ending"]["status"] == "step_limit"
    assert torch.equal(content["past"]["state"]["points"]["x"], result.state.x)


def test_checkpoints_are_as_seldom_as_asked_and_at_the_end(tmp_path: Path) -> None:
    kept(tmp_path, checkpoint_every=3600)
    names = [file.name for file in Store(tmp_path).files()]
    assert names == ["step-000000000000.pt", "step-000000000006.pt"]
    with pytest.raises(ValueError, match=r"checkpoint_every must be .* got -1"):
        kept(tmp_path, checkpoint_every=-1)


def test_what_a_killed_process_left_behind_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".bilevel-4711-step-000000000003.pt.part").write_bytes(b"half of it")
    kept(tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_two_runs_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    def second(progress: bilevel.Progress) -> None:
        with pytest.raises(UserError, match="another run is at work in"):
            kept(tmp_path)

    kept(tmp_path, callbacks=[second])
    kept(tmp_path)  # the lock is gone


@pytest.mark.skipif(os.name != "posix", reason="processes are forked")
def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from bilevel.durable.lock import locked\n"
        "with locked(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert ended.returncode == -9
    with locked(tmp_path):
        pass


def test_a_memory_that_could_not_be_read_again_is_refused_at_once(tmp_path: Path) -> None:
    class Strange(bilevel.StatefulCallback):
        def __call__(self, progress: bilevel.Progress) -> None: ...

        def memory(self) -> dict[str, Any]:
            return {"problem": Path("here")}

        def remember(self, memory: dict[str, Any]) -> None: ...

    with pytest.raises(TypeError, match=r"given something else: .*pathlib"):
        kept(tmp_path, callbacks=[Strange()])
