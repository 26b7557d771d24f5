"""The quickest example runs; it asserts its own result."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["three_levels"])
def test_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [name])
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
    torch.set_num_threads(threads)
