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


# How far another kind of processor, which rounds differently, may lead a short run away. Where a
# tolerance ends the solves, it ends them a step earlier or later there, and the run agrees to no
# more than that tolerance.
DOUBLE, SINGLE, TOLERANCE = 1e-6, 1e-3, 5e-3


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", registry())
def test_a_short_run_ends_as_recorded(name: str, problem: str) -> None:
    now, then = run(name, problem), kept(name)[problem]
    again = f"{name} on {problem}: if that is meant, python tests/golden/record.py {name}"
    counts, recorded = now.pop("counts"), then.pop("counts")
    ends_by_tolerance = registry()[name].make().price(1).hv is None
    assert ends_by_tolerance or counts == recorded, again
    allowed = TOLERANCE if ends_by_tolerance else SINGLE if problem == "single" else DOUBLE
    for key, numbers in then.items():
        found = torch.tensor([float.fromhex(n) for n in now[key]], dtype=torch.float64)
        truth = torch.tensor([float.fromhex(n) for n in numbers], dtype=torch.float64)
        assert float((found - truth).norm()) <= allowed * float(truth.norm()), (key, again)
