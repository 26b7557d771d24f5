"""The command in a hostile place: full or closed outputs, too little memory, long words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from bilevel.cli import main as command


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bilevel", *words], stderr=subprocess.PIPE, text=True, **options
    )


def test_an_output_that_is_always_full_is_a_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        ended = run("data", "list", stdout=full, check=False)
    assert (ended.returncode, ended.stderr) == (
        2,
        "error: cannot read or write: [Errno 28] No space left on device\n",
    )


def test_a_closed_output_is_no_failure() -> None:
    words = [sys.executable, "-m", "bilevel", "data", "path", "mnist"]
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, check=False
    )
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (MemoryError("12 GB"), "there is not enough memory: 12 GB"),
        (RuntimeError("can't allocate memory: you tried"), "there is not enough memory"),
        (ImportError('data sets need sklearn: pip install "bilevel[data]"'), "need sklearn: pip"),
        (PermissionError(13, "Permission denied", "a.txt"), "cannot read or write: [Errno 13]"),
    ],
)
def test_what_the_machine_lacks_is_a_sentence(
    failure: Exception,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise failure

    monkeypatch.setattr(command, "build", lambda: app)
    monkeypatch.setattr(sys, "argv", ["bilevel"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "x" * 100_000),
        ("data", "get", "x" * 100_000),
        ("few-shot", "train", "--data", "x" * 100_000),
        ("few-shot", "train", "--data", "fc100", "--filters", "1000000"),
        ("run", "mnist-p0.2", "--seeds", "99999999999"),
        ("few-shot", "evaluate", "absent.pt", "--seed", str(2**64)),
        ("few-shot", "train", "--data", "fc100", "--steps", "9" * 5000),
        ("clean", "--" + "x" * 5000),
    ],
)
def test_odd_words_are_refused_in_a_few_lines(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bilevel", *words])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert 0 < len(capsys.readouterr().err) < 3000
