"""What somebody types first: the bare command, --help, init, doctor, a wrong name."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bilevel.cli import main as command
from bilevel.cli import usage
from bilevel.cli.bars import console
from bilevel.cli.commands import doctor
from bilevel.cli.commands.init import TEMPLATES, Kind

from ..truth import forked
from .test_startup import COMMANDS, whole


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


def leaf(words: str) -> Any:
    """The command that these words call."""
    found: Any = whole()
    for word in words.split():
        found = found.commands[word]
    return found


@pytest.mark.parametrize("words", LEAVES)
def test_every_help_has_two_examples_that_parse(words: str) -> None:
    calls = usage.examples(leaf(words), f"bilevel {words}")
    assert len(calls) >= 2
    for call in calls:
        given = shlex.split(call.split(" > ")[0])
        given = given[given.index("bilevel") + 1 :]
        assert given[: len(words.split())] == words.split()
        with whole().make_context("bilevel", list(given)) as context:
            command, rest = context.command, given
            for _ in words.split():
                _, command, rest = command.resolve_command(context, rest)
            command.make_context(words, rest, parent=context).close()


def missing() -> list[str]:
    """The commands that cannot run without being told on what."""
    needy = [words for words in LEAVES if any(part.required for part in leaf(words).params)]
    return [*needy, "bench", "complexity"]


@cache
def ended(calls: tuple[str, ...]) -> dict[str, Any]:
    """Of each call the exit code, what it said on stderr, and what it had imported by then."""
    program = (
        "import contextlib, io, json, shlex, sys\nfrom bilevel.cli.main import main\n"
        "heavy, found = {'torch', 'pandas', 'sklearn', 'matplotlib'}, {}\n"
        "for call in sys.argv[1:]:\n"
        "    sys.argv = ['bilevel', *shlex.split(call)]\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as said:\n"
        "        try:\n            main()\n"
        "        except SystemExit as end:\n"
        "            code = end.code\n"
        "    found[call] = code, said.getvalue(), sorted(heavy & set(sys.modules))\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *calls], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_most_commands_need_to_be_told_something() -> None:
    assert {"clean", "predict", "run", "few-shot train", "data get"} <= set(missing())


@pytest.mark.parametrize("words", missing())
def test_a_missing_argument_is_told_in_one_sentence_with_an_example_before_torch(
    words: str,
) -> None:
    code, said, heavy = ended(tuple(missing()))[words]
    assert (code, heavy) == (2, [])
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert f": bilevel {words} " in said


@pytest.mark.parametrize("words", LEAVES)
def test_a_wrong_option_is_told_in_one_sentence_before_torch(words: str) -> None:
    code, said, heavy = ended(tuple(f"{each} --nonsense" for each in LEAVES))[f"{words} --nonsense"]
    assert (code, heavy) == (2, [])
    assert said.startswith(f"error: bilevel {words}: no such option: --nonsense ")
    assert said.endswith(f"(see bilevel {words} --help)\n")
    assert said.count("\n") == 1


WRONG = (
    "clean absent.csv --label a -o x",
    "predict absent.npz absent.csv",
    "few-shot evaluate absent.pt",
    "init nonsense",
    "bench nonsense",
    "nonsense",
    "clean a.csv --label a --label=b -o x",
    "few-shot train --data a --ways 2 --ways 3",
)


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_name_is_told_before_anything_heavy_is_imported(call: str) -> None:
    code, said, heavy = ended(WRONG)[call]
    assert (code, heavy) == (2, [])
    assert "Value error" not in said
    assert "twice" not in said or "was given twice, as " in said
    assert ("twice" in said) == (call in WRONG[-2:])


def test_what_may_be_repeated_may_be_and_also_has_commas(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert usage.split(["a, b", "c,"]) == ["a", "b", "c"]
    code, _, said = run(capsys, *shlex.split("bench quadratics --methods soba --methods saba,nope"))
    assert (code, "nope" in said, "twice" in said) == (2, True, False)


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
