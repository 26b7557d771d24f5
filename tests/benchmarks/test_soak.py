"""The soak: what is flat is called flat, and every kind of leak is found."""

from __future__ import annotations

import ctypes
import gc
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import bilevel
from bilevel.algorithms import AIDBiO, registry
from bilevel.errors import UserError
from bilevel.lab.experiments.runner import torch_threads
from bilevel.runs.result import Status

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from soak import cases as module  # noqa: E402
from soak.cases import CASES, Case, smooth, soak  # noqa: E402
from soak.growth import Growth, Watch, growth, held_by_a_record  # noqa: E402

STEPS = 120
CHEAP = AIDBiO(inner_steps=1, inner_lr=0.1, cg_steps=1, outer_lr=1e-3)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")


@pytest.mark.parametrize("kind", CASES)
def test_a_run_is_flat(kind: str) -> None:
    case = CASES[kind]
    with torch_threads(1):
        found = case.run(case.make(registry()["stocbio"]), STEPS)
    assert found.status is Status.STEP_LIMIT
    assert found.leaks() == []
    assert found.steps == STEPS / 2
    assert found.handles == 0
    assert abs(found.objects) < 5  # exact, once the history is taken off


def test_a_callback_that_keeps_every_state_is_found() -> None:
    kept: list[Any] = []
    found = growth(smooth(), CHEAP, STEPS, [lambda progress: kept.append(progress.state)])
    assert "objects" in found.leaks()
    assert found.objects / found.steps > 4  # a state and its tensors


def test_memory_that_no_object_tells_of_is_found() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that earlier tests have freed would be used first
    kept: list[bytes] = []  # bytes are not among the objects that the collector knows
    found = growth(smooth(), CHEAP, STEPS, [lambda progress: kept.append(b"x" * 1_000_000)])
    assert found.leaks() == ["memory"]
    assert 0.5 < found.resident / (found.steps * 1_000_000) < 2


def test_files_that_stay_open_are_found() -> None:
    opened: list[int] = []
    found = growth(
        smooth(), CHEAP, STEPS, [lambda progress: opened.append(os.open("/", os.O_RDONLY))]
    )
    for descriptor in opened:
        os.close(descriptor)
    assert "file handles" in found.leaks()
    assert found.handles == found.steps


def test_the_history_is_what_a_record_takes() -> None:
    result = bilevel.minimize(smooth(), CHEAP, steps=60)
    size, objects = held_by_a_record(result.history)
    assert 300 < size < 2000
    assert 1 <= objects <= 4


def test_thresholds_are_between_the_quarters() -> None:
    def leaks(**changes: float) -> list[str]:
        flat = {"steps": 500, "resident": 0, "objects": 0, "handles": 0, "history": 800}
        return Growth(Status.STEP_LIMIT, **{**flat, **changes}).leaks()

    assert leaks() == leaks(resident=2**22, objects=90, handles=0.4) == []
    assert leaks(resident=2**23, objects=110, handles=1) == ["memory", "objects", "file handles"]


def test_the_first_quarter_does_not_count() -> None:
    """Caches fill, buffers grow: what is held after the second quarter is compared with it."""
    held: list[Any] = []

    def warm_up(progress: bilevel.Progress) -> None:
        if progress.record.step < STEPS // 4:
            held.append([torch.zeros(9)])

    assert growth(smooth(), CHEAP, STEPS, [warm_up]).leaks() == []


def test_the_garbage_collector_is_as_before_afterwards() -> None:
    import gc

    with Watch(100):
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def leaky() -> bilevel.Problem:
    kept: list[Any] = []

    def outer(x: Any, y: Any) -> Any:
        kept.append([y])
        return (y - 1).square().sum()

    start = torch.zeros(2).double()
    return bilevel.Problem(outer, lambda x, y: (y - x).square().sum(), start, start)


def command(*words: str) -> int:
    """benchmarks/soak.py, whose name the package beside it takes."""
    program = runpy.run_path(str(ROOT / "benchmarks" / "soak.py"))
    ended: int = program["main"](words)
    return ended


def test_the_command_ends_with_one_if_something_grows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "CASES", {"good": Case(smooth, {}), "bad": Case(leaky, {})})
    assert command("aid-bio", "--steps", str(STEPS)) == 1
    _, good, bad, summary = capsys.readouterr().out.splitlines()
    assert good.endswith("flat")
    assert bad.endswith("GROWS: objects")
    assert summary == "1 of 2 runs of 120 steps are flat"


def test_the_command_ends_with_zero_if_nothing_grows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "CASES", {"good": Case(smooth, {})})
    assert command("bsa", "ttsa", "--steps", "100") == 0
    assert "2 of 2 runs of 100 steps are flat" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"there is no algorithm 'sgd'; there are .*aid-bio,"):
        command("sgd")


def test_a_run_that_ends_early_is_no_success() -> None:
    diverging = AIDBiO(inner_steps=1, inner_lr=3.0, cg_steps=1, outer_lr=1e-3)
    with pytest.raises(ValueError, match=r"too few steps to see growth, .*not finite"):
        growth(smooth(), diverging, 100_000)
    found = module.Finding("x", "y", Growth(Status.DIVERGED, 500, 0, 0, 0, 800))
    assert (found.is_bad, found.verdict) == (True, "ended early: diverged")


def test_every_algorithm_is_soaked_and_a_refusal_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flat = Growth(Status.STEP_LIMIT, 500, 0, 0, 0, 800)
    monkeypatch.setattr(Case, "run", lambda self, algorithm, steps: flat)
    findings = list(soak(10))
    assert {(f.case, f.algorithm) for f in findings} == {(c, a) for c in CASES for a in registry()}
    refused = {(f.case, f.algorithm): f.verdict for f in findings if f.growth is None}
    assert set(refused) == {("few-shot tasks", "bsa"), ("few-shot tasks", "ttsa")}
    assert all(
        verdict.startswith("not run: the derivative belongs to") for verdict in refused.values()
    )


def test_a_checkpointed_case_writes_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def see(problem: Any, algorithm: Any, steps: int, callbacks: Any, checkpoint: Any) -> Growth:
        folders.append(Path(checkpoint))
        assert folders[-1].is_dir()
        return Growth(Status.STEP_LIMIT, 500, 0, 0, 0, 800)

    monkeypatch.setattr(module, "growth", see)
    CASES["rows, with checkpoints"].run(CHEAP, 10)
    assert len(folders) == 1
    assert not folders[0].exists()
