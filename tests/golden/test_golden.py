"""Short runs end as they were recorded: a change of structure changes no number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from bilevel.algorithms import registry

from .record import PROBLEMS, kept, run


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", registry())
def test_a_short_run_ends_as_recorded(name: str, problem: str) -> None:
    now, then = run(name, problem), kept(name)[problem]
    assert now.pop("counts") == then.pop("counts")
    single = problem == "single"
    for key, numbers in then.items():
        found = torch.tensor([float.fromhex(n) for n in now[key]], dtype=torch.float64)
        truth = torch.tensor([float.fromhex(n) for n in numbers], dtype=torch.float64)
        # The same bits on the same kind of processor; another one rounds differently.
        torch.testing.assert_close(found, truth, rtol=2e-4 if single else 1e-9, atol=1e-9)
