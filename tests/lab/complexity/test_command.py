"""`bilevel complexity --quick`, killed, run again, and with other settings."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from bilevel.cli.main import main
from bilevel.lab.complexity import job
from bilevel.lab.complexity.studies import QUICK
from bilevel.lab.complexity.tables import as_markdown, lines


class Shown(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One measured folder for all tests."""
    return tmp_path_factory.mktemp("complexity") / "out"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path):
    monkeypatch.setenv("COLUMNS", "80")

    def call(*options: str, into: Path = folder) -> Shown:
        arguments = ["bilevel", "complexity", "--quick", "-o", str(into), *options]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as ended:
            main()
        return Shown(int(ended.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each cell that is measured."""
    seen: list[int] = []
    race = job.race

    def counted(*arguments):
        seen.append(len(seen))
        return race(*arguments)

    monkeypatch.setattr(job, "race", counted)
    return seen


ONE_SEED = [replace(study, seeds=1) for study in QUICK]
CELLS = sum(len(study.kappas) * len(study.methods) for study in QUICK)


def silent(what: str, done: float, total: int) -> None:
    """No bar."""


def test_quick_measures_both_tables_and_says_where_they_are(run, races, folder: Path) -> None:
    shown = run("--seeds", "1")
    assert shown.code == 0, shown.err
    assert len(races) == CELLS
    assert shown.out.count("Table 1:") == 2
    assert shown.out.count("Table 2:") == 1
    for method in ("AID-BiO", "ITD-BiO", "AID-BiO-increasing", "stocBiO", "BSA", "TTSA"):
        assert method in shown.out
    assert f"report: {folder / 'report.html'}" in shown.out
    names = {path.name for path in folder.iterdir()}
    figures = {f"{study.name}.png" for study in QUICK}
    assert names == figures | {
        *("about.json", "cells", "counts.json", "plan.json", "report.html", "tables.md")
    }
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "exact gradient descent" in page
    assert "bilevel complexity --quick" in page
    assert "http://" not in page.split("<script")[0]


def test_run_again_it_measures_nothing_and_finds_the_same(races, folder: Path) -> None:
    records = (folder / "about.json").read_text()
    found = job.measure(ONE_SEED, folder, "again", silent)
    assert races == []
    assert (folder / "about.json").read_text() == records  # who measured is another matter
    tables = (folder / "tables.md").read_text()
    for study in ONE_SEED:
        assert as_markdown(study, lines(study, found[study.name])) in tables


def test_killed_before_the_end_it_measures_what_is_missing_with_the_same_counts(
    races, folder: Path
) -> None:
    lost = sorted((folder / "cells").iterdir())[:2]
    before = [file.read_text() for file in lost]
    for file in lost:
        file.unlink()
    job.measure(ONE_SEED, folder, "again", silent)
    assert len(races) == 2
    assert [file.read_text() for file in lost] == before


def test_more_seeds_are_added_to_those_that_are_there(races, tmp_path: Path) -> None:
    study = replace(QUICK[0], methods=QUICK[0].methods[:1])
    for seeds in (1, 3):
        job.measure([replace(study, seeds=seeds)], tmp_path / "out", "more", silent)
    assert len(races) == 3 * len(study.kappas)


def test_progress_is_told_cell_by_cell(folder: Path) -> None:
    told: list[tuple[float, int]] = []
    job.measure(ONE_SEED, folder, "told", lambda what, done, total: told.append((done, total)))
    assert told == [(done, CELLS) for done in range(CELLS + 1)]


def test_the_counts_of_every_trial_are_stored(folder: Path) -> None:
    counts = json.loads((folder / "counts.json").read_text())
    stored = {part["study"]: part["cells"] for part in counts["cells"]}
    assert list(stored) == [study.name for study in QUICK]
    cell = stored["bent"][0]
    assert {"method", "kappa", "seed", "trials"} == set(cell)
    trial = cell["trials"][0]
    assert trial["prices"][0]["gc_f"] == 2 * trial["prices"][0]["steps"]
    assert trial["ending"] == "reached"


def test_a_folder_with_other_settings_is_refused(run, races, folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    whole = json.dumps(plan)
    plan["bent"]["epsilons"] = [3.0]
    (folder / "plan.json").write_text(json.dumps(plan))
    shown = run("--seeds", "1")
    (folder / "plan.json").write_text(whole)
    assert shown.code == 2
    assert "other settings" in shown.err
    assert races == []


def test_a_damaged_cell_is_named(run, folder: Path) -> None:
    file = sorted((folder / "cells").iterdir())[0]
    text = file.read_text()
    file.write_text(text[:20])
    shown = run("--seeds", "1")
    file.write_text(text)
    assert shown.code == 2
    assert file.name in "".join(shown.err.split())


def test_a_folder_of_something_else_is_not_touched(
    run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    shown = run(into=tmp_path)
    assert shown.code == 2
    assert "not empty" in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_no_seeds_are_a_usage_error(run) -> None:
    assert run("--seeds", "0").code == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_the_codes_of_a_shell_and_says_how_to_go_on(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, code: int
) -> None:
    def interrupted(*arguments: object) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr("bilevel.lab.complexity.job.measure", interrupted)
    shown = run(into=tmp_path / "kept")
    assert shown.code == code
    assert "run the same command again to resume" in shown.err
