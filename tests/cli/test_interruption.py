"""Signals to commands: what they keep, what they say, and their exit codes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from bilevel.apps.few_shot.checkpoint import load
from bilevel.cli.bars import RunsBar
from bilevel.cli.main import main
from bilevel.durable.store import Store
from bilevel.lab import figures
from bilevel.lab.experiments import experiment as files
from bilevel.lab.experiments.judges import Fastest
from bilevel.lab.experiments.verdicts import Figure
from bilevel.lab.run_folder import Folder

from ..apps.cleaning.dirty_tables import dirty
from ..apps.few_shot.few_shot_pictures import put_images, small
from ..lab.experiments.small_experiments import tiny_toml
from .signalled import begin

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked")


@pytest.mark.parametrize(("number", "code"), CODES.items())
def test_an_interrupted_clean_writes_nothing_and_says_so(
    number: int, code: int, tmp_path: Path
) -> None:
    dirty(rows=20_000).train.to_csv(tmp_path / "train.csv", index=False)

    def begun() -> bool:
        said = command.output / "err"
        return said.exists() and "read train.csv" in said.read_text()

    command = begin(tmp_path, "clean", "train.csv", "--label", "label", "-o", "found")
    shown = command.send(number, begun)
    assert shown.code == code, shown.err
    assert "interrupted: nothing is written" in shown.err
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(("number", "code"), CODES.items())
def test_an_interrupted_run_shows_what_there_is_and_keeps_it(
    number: int, code: int, tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text(tiny_toml(budget={"steps": 100_000}, seeds=[0]))
    log = Folder(tmp_path / "out/tiny").log("stoc", 0)
    shown = begin(tmp_path, "run", "tiny.toml").send(number, lambda: len(log.lines()) > 5)
    assert shown.code == code, shown.err
    assert "test accuracy" in shown.out
    assert "stoc " in shown.out
    assert "hoag " not in shown.out  # it had not begun
    assert "interrupted: the results so far are kept; to resume:" in shown.err
    kept = Store(log.checkpoints).load()
    assert kept is not None
    assert kept["past"]["state"]["step"] >= log.lines()[-1]["step"] > 4
    assert not log.done


def test_an_interrupted_reproduction_judges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.toml").write_text(tiny_toml(name="one"))
    figure = Figure("A figure", "A paper", ("one",), {"it is fast": Fastest("stoc", ("f",))}, {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "PAPER", tmp_path)
    monkeypatch.setattr(figures, "find_figure", lambda name: figure)
    monkeypatch.setattr(sys, "argv", ["bilevel", "reproduce", "figure-0"])
    told = iter(range(100))

    def tell(*_: object) -> None:
        if next(told) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(RunsBar, "__call__", tell)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 143
    shown = capsys.readouterr().err
    assert "interrupted before the verdicts: the runs in out/figure-0 are kept" in shown
    assert "to resume: bilevel reproduce figure-0" in shown
    assert not list(tmp_path.rglob("verdicts.*"))


def test_an_interrupted_sweep_keeps_its_finished_trials(tmp_path: Path) -> None:
    grid = {"hoag": {"outer_lr": [1e-6, 10.0]}}
    (tmp_path / "tiny.toml").write_text(tiny_toml(sweep=grid, budget={"steps": 100_000}))
    shown = begin(tmp_path, "sweep", "tiny.toml").send(
        signal.SIGTERM, lambda: (tmp_path / "out/tiny-sweep.db").exists()
    )
    assert shown.code == 143, shown.err
    assert "interrupted: finished trials are in sqlite:///out/tiny-sweep.db" in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(("number", "code"), CODES.items())
def test_an_interrupted_training_keeps_its_last_step_and_goes_on(
    number: int, code: int, tmp_path: Path
) -> None:
    put_images(tmp_path / "data")
    train = ("few-shot", "train", *small("--validate-every", "10", "--output"))
    last = tmp_path / "run/last.pt"
    shown = begin(tmp_path, *train, "run", "--steps", "100000").send(number, last.exists)
    assert shown.code == code, shown.err
    step = load(last).step
    assert f"stopped after step {step:,}, which is kept in run/last.pt" in shown.err
    page = (tmp_path / "run/report.html").read_text()
    assert "The training is not finished." in page
    assert "interrupted" in page
    if number == signal.SIGTERM:
        return  # what follows is the same
    more = str(step - step % 10 + 12)
    others = (
        begin(tmp_path, *train, "run", "--steps", more),
        begin(tmp_path, *train, "whole", "--steps", more),
    )
    assert [process.end().code for process in others] == [0, 0]
    assert torch.equal(load(last).x, load(tmp_path / "whole/last.pt").x)


def test_two_processes_in_one_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(tiny_toml(budget={"steps": 100_000}, seeds=[0]))
    log = Folder(tmp_path / "out/tiny").log("stoc", 0)
    first = begin(tmp_path, "run", "tiny.toml")

    def second_is_refused() -> bool:
        if not log.lines():
            return False
        shown = begin(tmp_path, "run", "tiny.toml").end()
        assert shown.code == 2
        assert "another run is at work in out/tiny" in shown.err
        return True

    assert first.send(signal.SIGINT, second_is_refused).code == 130
