"""The line of progress: in a terminal alone, never wider, and not with --quiet."""

from __future__ import annotations

import io

import pytest

from bilevel.lab.notify import line_in_terminal, silent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_is_written_over_and_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("COLUMNS", "40")
    tell = line_in_terminal()
    for done in range(4):
        tell("a method with a long name, seed 1", done, 3)
    lines = shown.getvalue().removesuffix("\n").split("\r")[1:]
    assert {len(line) for line in lines} == {39}
    assert lines[-1].startswith("3 of 3 runs, ")
    assert "\x1b" not in shown.getvalue()


def test_pipes_and_the_quiet_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert line_in_terminal() is silent
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("BILEVEL_QUIET", "1")
    assert line_in_terminal() is silent
