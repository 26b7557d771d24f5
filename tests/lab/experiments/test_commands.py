"""`bilevel run`, `bilevel sweep` and `bilevel reproduce`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from bilevel.cli.commands import reproduce as commands
from bilevel.cli.main import main
from bilevel.lab import figures
from bilevel.lab.design import job
from bilevel.lab.experiments import archive
from bilevel.lab.experiments import experiment as files
from bilevel.lab.experiments.experiment import load
from bilevel.lab.experiments.judges import Fastest, GainFalls
from bilevel.lab.experiments.verdicts import Figure, Row

from .small_experiments import tiny_toml


class Shown(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Shown]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["bilevel", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return Shown(int(ended.value.code or 0), *capsys.readouterr())

    return call


def test_run_writes_a_folder_and_says_how_it_went(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(tiny_toml())
    shown = run("run", "tiny.toml", "--seeds", "1")
    assert shown.code == 0, shown.err
    assert "test accuracy" in shown.out
    assert "bilevel report out/tiny" in shown.out
    about = json.loads((tmp_path / "out/tiny/about.json").read_text())
    assert about["command"] == "bilevel run tiny.toml --seeds 1"
    assert [path.name for path in (tmp_path / "out/tiny/runs/hoag").iterdir()] == ["seed-0"]


def test_a_budget_in_seconds_takes_the_place_of_steps(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(tiny_toml(budget={"steps": 10**9}))
    shown = run("run", "tiny.toml", "--seeds", "1", "--budget", "0.05", "-o", "here")
    assert shown.code == 0, shown.err
    done = json.loads((tmp_path / "here/runs/stoc/seed-0/done.json").read_text())
    assert done["status"] == "time_limit"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "absent.toml"), "absent.toml"),
        (("run", "bad.toml"), "there is no 'inner_rl'"),
        (("run", "good.toml", "--budget", "-1"), "budget.seconds = -1.0"),
        (("sweep", "good.toml"), "no [sweep.LABEL] table"),
        (("reproduce", "figure-9"), "choose one of figure-2, figure-3, figure-4"),
        (("reproduce", "figure-2", "--only", "fc"), "no experiment 'fc': choose one of fc100"),
        (("reproduce", "all", "--only", "fc100"), "no experiment 'fc100': choose one of fc100-t20"),
        (("reproduce", "figure-2", "--without", "mml"), "no algorithm 'mml' to leave out"),
    ],
)
def test_a_mistake_is_a_message_and_nothing_written(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "good.toml").write_text(tiny_toml())
    (tmp_path / "bad.toml").write_text(tiny_toml().replace("neumann_terms", "inner_rl"))
    shown = run(*arguments)
    assert shown.code == 2
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err
    assert not list(tmp_path.rglob("experiment.toml"))


def test_sweep_writes_an_experiment_with_the_best_settings(run: Run, tmp_path: Path) -> None:
    grid = {"hoag": {"outer_lr": [1e-6, 10.0]}}
    (tmp_path / "tiny.toml").write_text(tiny_toml(sweep=grid))
    shown = run("sweep", "tiny.toml", "--write", "best.toml")
    assert shown.code == 0, shown.err
    assert "outer_lr = 10.0" in shown.out
    best = load(tmp_path / "best.toml")
    assert best.algorithms[1].settings["outer_lr"] == 10.0
    assert best.algorithms[0] == load(tmp_path / "tiny.toml").algorithms[0]
    assert (tmp_path / "out/tiny-sweep.db").exists()


@pytest.mark.parametrize("file", ["/proc/best.toml", "absent/best.toml", "."])
def test_sweep_is_told_before_its_work_where_it_cannot_write(
    run: Run, tmp_path: Path, file: str
) -> None:
    """No file can be made in /proc, whoever asks: like a folder on a read-only disk."""
    (tmp_path / "tiny.toml").write_text(tiny_toml(sweep={"hoag": {"outer_lr": [1e-6, 10.0]}}))
    shown = run("sweep", "tiny.toml", "--write", file)
    assert shown.code == 2
    assert f"cannot write to {file}" in shown.err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_reproduce_prints_and_stores_a_verdict_for_each_claim(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("one", "two")
    for name in names:
        budget = {"steps": 4, "seconds": 1000.0}
        (tmp_path / f"{name}.toml").write_text(tiny_toml(name=name, budget=budget))
    figure = Figure(
        title="A figure",
        source="A paper",
        experiments=names,
        claims={"stocBiO is fast": Fastest("stoc", ("test_loss",))},
        comparisons={"the gain falls": GainFalls("stoc", ("hoag",), "test_loss", names)},
    )
    monkeypatch.setattr(files, "PAPER", tmp_path)
    monkeypatch.setattr(figures, "find_figure", lambda name: figure)
    shown = run("reproduce", "figure-0", "--seeds", "2", "-o", "out")
    assert shown.code == 0, shown.err
    assert shown.out.count("stocBiO is fast") == 2
    rows = json.loads((tmp_path / "out/verdicts.json").read_text())
    assert [row["experiment"] for row in rows] == ["one", "two", "one, two"]
    assert {row["verdict"] for row in rows} <= {"confirmed", "undecided", "contradicted"}
    own = json.loads((tmp_path / "out/two/verdicts.json").read_text())
    assert own == rows[1:]
    packed = archive.read(tmp_path / "out/raw.json.gz")
    assert [asdict(row) for row in figure.judge(archive.evidence(packed))] == rows
    runs = archive.evidence(packed)["one"].curves.values()
    longest = max(curve.last("seconds") for curves in runs for curve in curves)
    assert packed["one"]["seconds"] == longest  # far below the limit of seconds
    about = packed["one"]["about"]
    assert about["load_after"] is not None
    assert len(about["data"]) == 16
    assert {"commit", "changed", "processor", "load_before", "command"} <= set(about)
    page = (tmp_path / "out/verdicts.md").read_text()
    assert "bilevel reproduce figure-0 --seeds 2 -o out" in page


def test_data_that_cannot_be_loaded_are_told_before_any_run_and_all_goes_on_with_the_rest(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.toml").write_text(tiny_toml(name="here"))
    (tmp_path / "away.toml").write_text(tiny_toml(name="away", data="mini-imagenet"))
    claims = {"stocBiO is fast": Fastest("stoc", ("test_loss",))}
    whole = Figure("Whole", "A paper", ("here", "away"), claims)
    monkeypatch.setattr(files, "PAPER", tmp_path)
    monkeypatch.setattr(figures, "find_figure", lambda name: whole)
    shown = run("reproduce", "figure-2", "-o", "out")
    assert shown.code == 2
    assert "'mini-imagenet' holds images by class" in shown.err
    assert not list(tmp_path.rglob("metrics.jsonl"))
    monkeypatch.setattr(commands, "figure_names", lambda: ["figure-2", "figure-3"])
    monkeypatch.setattr(job, "measure", lambda *given: {"studies": {}})
    monkeypatch.setattr(job, "judge", lambda raw: [Row("a design", "", "undecided", "", "", 10)])
    parts = {"figure-2": whole, "figure-3": replace(whole, experiments=("here",))}
    monkeypatch.setattr(figures, "find_figure", parts.__getitem__)
    shown = run("reproduce", "all", "--seeds", "1", "-o", "out")
    assert shown.code == 2
    assert "figure-2 was not run" in shown.err
    assert shown.out.count("stocBiO is fast") == 1
    assert "a design" in shown.out
    assert (tmp_path / "out/figure-3/verdicts.md").exists()


def test_a_dry_run_lists_what_is_left_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    shown = run("reproduce", "all", "--dry-run", "--seeds", "5", "--budget", "6")
    assert shown.code == 0, shown.err
    lines = {tuple(line.split()[:6]) for line in shown.out.splitlines()}
    assert ("figure-4", "newsgroups", "40", "0", "6", "cpu") in lines
    assert ("figure-5", "mnist-p0.4", "20", "0", "6", "cpu") in lines
    assert "hours in all" in shown.out
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_runs_is_refused_if_it_must_be_new(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/mine.txt").write_text("mine")
    shown = run("reproduce", "figure-5", "--no-resume", "-o", "old")
    assert shown.code == 2
    assert "--no-resume" in shown.err


def test_help_teaches_by_example(run: Run) -> None:
    for command in ("run", "sweep", "reproduce"):
        shown = run(command, "--help")
        assert f"bilevel {command} " in " ".join(shown.out.split())
