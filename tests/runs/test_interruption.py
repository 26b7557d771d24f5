"""Ctrl-C and SIGTERM: what `minimize` makes of them, inside and outside of `graceful`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bilevel.interruption import Interrupted, graceful, raising

import bilevel
from bilevel import interruption
from bilevel.algorithms import AIDBiO
from bilevel.durable import sealed
from bilevel.durable.store import Store
from bilevel.lab.experiments.experiment import Budget
from bilevel.lab.experiments.runner import run_experiment, run_one
from bilevel.lab.run_log import RunLog
from bilevel.lab.tasks import Instance

from ..lab.experiments.small_experiments import tiny
from ..truth import forked
from ..truth.quadratics import noisy_sum, quadratic
from .checkpoints.kept_runs import GOOD, assert_same, kept

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(autouse=True)
def ctrl_c_raises() -> Iterator[None]:
    """Also where the tests were started in the background, and Python leaves SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number: int, at: int) -> Callable[[bilevel.Progress], None]:
    """A callback in whose step the process gets a signal."""

    def callback(progress: bilevel.Progress) -> None:
        if progress.record.step == at:
            os.kill(os.getpid(), number)

    return callback


@pytest.mark.parametrize(("number", "code"), SIGNALS.items())
def test_a_signal_ends_a_run_after_its_step_with_a_result(
    number: int, code: int, tmp_path: Path
) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with graceful() as request:
        result = kept(tmp_path, callbacks=[send(number, at=3)])
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert (result.status, result.state.step, len(result.history)) == ("interrupted", 3, 3)
    assert result.message.startswith("The run was interrupted after 3 steps; the hypergradient's")
    assert request.requested
    assert request.exit_code == code
    assert sealed.read(Store(tmp_path).files()[-1])["ending"]["status"] == "interrupted"
    assert_same(kept(tmp_path), kept(tmp_path / "whole"))


def test_what_follows_an_interrupted_run_in_the_block_does_not_begin() -> None:
    with graceful():
        kept(None, callbacks=[send(signal.SIGINT, at=2)])
        second = kept(None, callbacks=[pytest.fail])
    assert (second.status, second.state.step) == ("interrupted", 0)
    assert kept(None).status == "step_limit"


def test_a_run_that_ends_with_the_signals_step_has_its_own_status() -> None:
    with graceful():
        assert kept(None, callbacks=[send(signal.SIGINT, at=6)]).status == "step_limit"


def test_without_the_block_ctrl_c_is_raised_and_the_last_step_is_kept(tmp_path: Path) -> None:
    """A step in work is thrown away; a loop around `minimize` ends as any loop does."""
    steps = iter(range(100))

    def lr(k: int) -> float:  # called in the midst of a step
        if next(steps) == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return 0.1

    algorithm = AIDBiO(inner_steps=3, inner_lr=0.4, outer_lr=lr)
    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path, algorithm=algorithm, checkpoint_every=3600, steps=1000)
    (first, last) = (sealed.read(file) for file in Store(tmp_path).files())
    assert first["past"]["state"]["step"] == 0 < last["past"]["state"]["step"]
    assert last["ending"] is None


def test_ctrl_c_in_a_callback_keeps_no_step_that_is_half_told(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        kept(tmp_path, callbacks=[send(signal.SIGINT, at=4)])
    assert sealed.read(Store(tmp_path).files()[-1])["past"]["state"]["step"] == 3
    assert_same(kept(tmp_path), kept(tmp_path / "whole"))


def test_the_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    code = (
        "import os, signal; from bilevel.interruption import graceful\n"
        "with graceful():\n"
        "    for i in range(5): os.kill(os.getpid(), signal.SIGINT); print(i, flush=True)"
    )
    ended = forked.begin(tmp_path, "-c", code).end()
    assert ended.code == -signal.SIGINT
    assert ended.out == "0\n"
    assert "A second signal stops at once" in ended.err


def test_in_another_thread_the_block_changes_nothing() -> None:
    seen: list[Any] = []

    def run() -> None:
        with graceful():
            seen.append(signal.getsignal(signal.SIGINT))
            seen.append(bilevel.minimize(quadratic().problem(), GOOD, steps=2).status)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT), "step_limit"]


@pytest.mark.parametrize(("number", "code"), SIGNALS.items())
def test_raising_makes_an_exception_of_a_signal(number: int, code: int) -> None:
    with pytest.raises(Interrupted) as stopped, raising():
        os.kill(os.getpid(), number)
    assert stopped.value.exit_code == code
    assert isinstance(stopped.value, KeyboardInterrupt)


def test_an_interrupted_experiment_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """Interrupted between two evaluations, so that the checkpoint is ahead of the lines."""
    experiment = tiny(budget={"steps": 6, "evaluations": 2}, seeds=[0])
    whole = run_experiment(experiment, tmp_path / "whole", "command")
    calls = iter(range(100))

    def advance(what: str, done: float, total: int) -> None:
        if next(calls) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted) as stopped, graceful():
        run_experiment(experiment, tmp_path / "broken", "command", advance)
    assert stopped.value.exit_code == 143
    log = RunLog(tmp_path / "broken/runs/stoc/seed-0")
    checkpoint = Store(log.checkpoints).load()
    assert checkpoint is not None
    assert checkpoint["past"]["state"]["step"] > log.lines()[-1]["step"]
    broken = run_experiment(experiment, tmp_path / "broken", "command")
    for contestant in experiment.algorithms:
        logs = [run.log(contestant.label, 0) for run in (whole, broken)]
        expected, found = ([{**line, "seconds": 0} for line in log.lines()] for log in logs)
        assert found == expected
        assert len(found) > 1
        final = [(log.folder / "final.npz").read_bytes() for log in logs]
        assert final[0] == final[1]


def test_a_run_with_other_data_in_its_folder_is_refused(tmp_path: Path) -> None:
    def instance(noise: float) -> Instance:
        return Instance(noisy_sum(20, noise).problem(), lambda x, y: {})

    with graceful():
        os.kill(os.getpid(), signal.SIGINT)
        run_one(instance(0.3), GOOD, 0, Budget(steps=4), RunLog(tmp_path))
    with pytest.raises(ValueError, match=r"another run: .*inner_data was 20 rows with digest"):
        run_one(instance(0.4), GOOD, 0, Budget(steps=4), RunLog(tmp_path))
    assert interruption.current().requested is False
