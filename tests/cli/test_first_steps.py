"""What somebody types first: the bare command, --help, init, doctor, a wrong name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bilevel.cli import main as command
from bilevel.cli.bars import console
from bilevel.cli.commands import doctor
from bilevel.cli.commands.init import TEMPLATES, Kind

from ..truth import forked
from .test_startup import COMMANDS, helped, whole


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bilevel", *words])
        patch.setattr(os, "environ", dict(os.environ))
        with pytest.raises(SystemExit) as ended:
            command.main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_the_bare_command_says_in_ten_lines_what_one_can_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, said, _ = run(capsys)
    assert code == 0
    assert len(said.splitlines()) == 10
    assert max(map(len, said.splitlines())) <= 120


def test_every_task_of_the_overview_names_a_command() -> None:
    assert {task.split()[0] for task in command._TASKS} <= set(whole().commands)


def test_a_narrow_terminal_gets_two_lines_a_task(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, said, _ = run(capsys)
    assert max(map(len, said.splitlines())) <= 64


LEAVES = [words for words in COMMANDS if words not in ("", "data", "few-shot")]


@pytest.mark.parametrize("words", LEAVES)
def test_every_help_has_two_examples(words: str) -> None:
    said = " ".join(helped()[f"{words} --help"][1].replace("│", " ").split())
    # Once in its usage line, and then in two examples.
    assert said.count(f"bilevel {words}") >= 3


@pytest.mark.parametrize(
    "words",
    [
        ("clean", "absent.csv", "--label", "a", "-o", "x"),
        ("predict", "absent.npz", "absent.csv"),
        ("few-shot", "evaluate", "absent.pt"),
        ("init", "nonsense"),
        ("clean",),
    ],
)
def test_a_wrong_or_missing_name_is_told_before_anything_heavy_is_imported(
    words: tuple[str, ...],
) -> None:
    code = (
        "import sys\nfrom bilevel.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n"
        "    heavy = {'torch', 'numpy', 'pandas', 'sklearn'} & set(sys.modules)\n"
        "    print(end.code, sorted(heavy))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "2 []"


@pytest.mark.parametrize("place", [0, 1, 3])
def test_quiet_may_stand_before_or_after_the_command(place: int) -> None:
    words = ["clean", "orders.csv", "--force"]
    words.insert(place, "--quiet")
    assert command._hoisted(words) == ["--quiet", "clean", "orders.csv", "--force"]


def test_quiet_silences_bars_and_notes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(command.QUIET, "1")
    console().print("a note")
    monkeypatch.delenv(command.QUIET)
    console().print("another")
    assert capsys.readouterr().err == "another\n"


def test_data_can_be_listed_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = run(capsys, "data", "list", "--json")
    found: list[dict[str, Any]] = json.loads(said)
    assert code == 0
    assert {"digits", "mnist"} <= {entry["name"] for entry in found}


def test_the_doctor_finds_hypergradients_right_and_says_so_to_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said, _ = run(capsys, "doctor", "--json")
    judged = [line["good"] for line in json.loads(said) if line["good"] is not None]
    assert (code, judged) == (0, [True, True, True])


def test_the_doctor_sees_a_hypergradient_that_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_RIGHT", 1e-30)
    monkeypatch.setattr(doctor, "kernels", list)
    code, said, _ = run(capsys, "doctor")
    assert code == 1
    assert said.count("WRONG") == 3


def test_there_is_a_template_for_each_kind() -> None:
    assert {file.name.split(".")[0] for file in TEMPLATES.iterdir()} == {*map(str, Kind)}


@pytest.mark.parametrize("kind", [Kind.CLEANING, Kind.PENALTIES, Kind.NETWORK])
def test_what_init_writes_runs_at_once(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "init", str(kind))[0] == 0
    ended = forked.begin(tmp_path, f"{kind}.py").end()
    assert (ended.code, ended.err) == (0, "")


def test_the_comparison_is_an_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bilevel.lab.experiments.experiment import load

    monkeypatch.chdir(tmp_path)
    run(capsys, "init", "comparison")
    assert [entry.name for entry in load("comparison.toml").algorithms] == ["stocbio", "aid-bio"]
    code, _, said = run(capsys, "init", "comparison")
    assert code == 2
    assert "exists already" in said


def test_colours_are_left_out_when_they_are_not_wanted() -> None:
    environment = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bilevel", "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b[3" not in done.stdout
