"""Runs of the version before go on to where they would have ended.

`format_1` holds, as that version wrote them, checkpoints at step 3 of 6 (those of steps 2 and 3),
and in NAME.end.pt what the unbroken run of 6 steps ended with.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import Algorithm, registry
from bilevel.durable import sealed
from bilevel.durable.store import Store
from bilevel.errors import UserError

from ...golden.record import quadratic, softmax, sums
from .kept_runs import assert_same

HERE = Path(__file__).parent / "format_1"
# Not HOAG, whose tolerance means another thing now.
RUNS = {"aid-bio": quadratic, "stocbio": softmax, "itd-bio": sums}
# Another torch, or another number of threads, gives other last digits, and says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the run in .* continues, but its last digits"),
    pytest.mark.filterwarnings("ignore:the run in .* continues, but not all was compared"),
]


def assert_close(found: Tensor, recorded: Tensor) -> None:
    """Up to the last digits, which another kind of processor rounds differently."""
    torch.testing.assert_close(found, recorded, rtol=1e-11, atol=1e-13)


def algorithm(name: str) -> Algorithm:
    """What then was `make(outer_optimizer="adam")`, with the learning rate of the demo."""
    entry = registry()[name]
    return entry.make(outer=bilevel.updates.Adam(entry.demo["outer_lr"]), outer_lr=None)


def problem(name: str) -> bilevel.Problem:
    with torch.random.fork_rng():  # for the weights of a module, as they were in that process
        torch.manual_seed(0)
        return RUNS[name]()


def go_on(name: str, folder: Path, **changes: Any) -> bilevel.Result:
    given = {"steps": 6, "seed": 3, "checkpoint": folder, **changes}
    return bilevel.minimize(problem(name), given.pop("algorithm", algorithm(name)), **given)


@pytest.fixture(params=RUNS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / name, tmp_path / name))


def test_a_run_of_the_version_before_goes_on_to_the_same_end(name: str, folder: Path) -> None:
    end = torch.load(HERE / f"{name}.end.pt", weights_only=True)
    result = go_on(name, folder)
    assert_close(result.state.x, end["x"])
    assert_close(result.state.y, end["y"])
    assert dict(result.counts) == end["counts"]
    assert [record.step for record in result.history] == [1, 2, 3, 4, 5, 6]
    # It was kept in the format of today, and ends at once when asked again.
    assert sealed.read(Store(folder).files()[-1])["format"] == "bilevel run 3"
    assert_same(go_on(name, folder, callbacks=[pytest.fail]), result)


def test_the_last_but_one_serves_when_the_last_is_damaged(name: str, folder: Path) -> None:
    newest = Store(folder).files()[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    end = torch.load(HERE / f"{name}.end.pt", weights_only=True)
    with pytest.warns(RuntimeWarning, match="damaged"):
        result = go_on(name, folder)
    assert_close(result.state.x, end["x"])
    assert dict(result.counts) == end["counts"]


def test_another_run_is_refused_there_too(name: str, folder: Path) -> None:
    with pytest.raises(UserError, match="seed was 3, is 4"):
        go_on(name, folder, seed=4)
    other = problem("aid-bio" if name != "aid-bio" else "itd-bio")
    with pytest.raises(UserError, match="size of x was"):
        bilevel.minimize(other, algorithm(name), seed=3, checkpoint=folder)
    slower = replace(algorithm(name), outer=bilevel.updates.Adam(0.05))
    with pytest.raises(UserError, match=r"algorithm.outer.lr was 0.\d, is 0.05"):
        go_on(name, folder, algorithm=slower)
    entry = registry()[name]
    with pytest.raises(UserError, match=r"algorithm.outer was bilevel.Adam, is None"):
        go_on(name, folder, algorithm=entry.make())


def test_what_was_called_converged_then_is_looked_at_now(folder: Path, name: str) -> None:
    """The word rested on the estimate alone: such a run goes on."""
    newest = Store(folder).files()[-1]
    content = sealed.read(newest)
    Store(folder).save(3, {**content, "status": "converged"})
    assert len(go_on(name, folder, tol=1e-12).history) == 6
