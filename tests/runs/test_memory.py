"""Memory, counted in the bytes of the tensors that are alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch
from bilevel.inner import SGD, GradientDescent
from bilevel.linear import CG
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import bilevel
from bilevel import AID, ITD
from bilevel.algorithms import AIDBiO, AnchoredAID, DoubleLoop, ITDBiO, Reverse, registry
from bilevel.algorithms.tried_steps import TriedSteps

from ..truth import dense_truth

SIZE = 4000  # numbers in y: large beside everything else
VECTOR = 8 * SIZE  # bytes


class LiveBytes(TorchDispatchMode):
    """The bytes of all storages that are made inside and still alive, now and at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in _tensors((args, kwargs)):  # what is first seen as an input was there before
            self._watch(tensor.untyped_storage(), 0)
        made = func(*args, **(kwargs or {}))
        for tensor in _tensors(made):
            self._watch(tensor.untyped_storage(), tensor.untyped_storage().nbytes())
        return made

    def _watch(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def peak(run: Callable[[], Any]) -> int:
    """The most bytes alive at a time, without help from the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        with LiveBytes() as live:
            run()
    finally:
        gc.enable()
    return live.peak


def problem() -> bilevel.Problem:
    """Not quadratic, so that graphs must hold tensors as large as y."""
    scale = torch.linspace(1, 2, SIZE).double()
    return bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum(),
        inner=lambda x, y: ((y - x.sum()).cosh() * scale).sum() + y.square().sum(),
        x0=torch.ones(2).double(),
        y0=torch.zeros(SIZE).double(),
    )


def peak_of_run(algorithm: DoubleLoop, steps: int) -> int:
    two_levels = problem()
    return peak(lambda: bilevel.minimize(two_levels, algorithm, steps=steps))


def peak_of_hypergradient(method: Any, inner: Any) -> int:
    p = problem()
    return peak(lambda: bilevel.hypergradient(p, p.x0, p.y0, method=method, inner=inner))


def test_the_measure_sees_the_graphs_of_plain_unrolling():
    """Autograd through D steps keeps several vectors a step: what ITD is to do without."""
    p = problem()
    few, many = (peak(lambda D=D: dense_truth.unrolled(p, p.x0, p.y0, [0.01] * D)) for D in (5, 15))
    assert (many - few) / 10 > 3 * VECTOR


@pytest.mark.parametrize("name", registry())
def test_what_is_alive_between_outer_steps_does_not_grow(name):
    entry = registry()[name]
    if issubclass(entry.algorithm, TriedSteps | AnchoredAID):
        pytest.skip("it keeps the differences of its last 20 steps by design")
    small = {"inner_lr": 0.01, "inner_steps": 3, "cg_steps": 3, "neumann_terms": 3}
    known = {field.name for field in fields(entry.algorithm)}
    small = {key: small[key] for key in entry.demo if key in small} | {"outer_lr": 1e-6}
    algorithm = entry.make(**{key: value for key, value in small.items() if key in known})
    two_levels, alive = problem(), []
    with LiveBytes() as live:
        bilevel.minimize(
            two_levels, algorithm, steps=6, callbacks=[lambda progress: alive.append(live.now)]
        )
    # From the third on: the run keeps the state before the last step, too. And where a coin decides
    # whether a step keeps new points or the old ones, what is alive goes up and down.
    assert min(alive[4:]) - max(alive[2:4]) < VECTOR / 8


def test_the_most_memory_of_an_aid_run_does_not_grow_with_outer_steps():
    algorithm = AIDBiO(inner_steps=3, inner_lr=0.01, cg_steps=3, outer_lr=1e-6)
    few, many = (peak_of_run(algorithm, steps) for steps in (2, 6))
    assert many < few + VECTOR / 8


@pytest.mark.parametrize(
    "make",
    [
        lambda D: AIDBiO(inner_steps=D, inner_lr=0.01, cg_steps=5, outer_lr=1e-6),
        lambda D: bilevel.algorithms.AIDFP(inner_steps=D, inner_lr=0.01, outer_lr=1e-6),
        lambda D: bilevel.algorithms.StocBiO(inner_steps=D, inner_lr=0.01, outer_lr=1e-6),
    ],
    ids=["aid-bio", "aid-fp", "stocbio"],
)
def test_memory_of_aid_does_not_grow_with_inner_steps(make):
    few, many = (peak_of_run(make(D), 2) for D in (2, 12))
    assert many < few + VECTOR / 8


def test_memory_of_aid_does_not_grow_with_linear_steps():
    few, many = (peak_of_hypergradient(AID(CG(N)), GradientDescent(2, 0.01)) for N in (2, 20))
    assert many < few + VECTOR / 8


def test_memory_of_itd_grows_by_one_vector_a_step():
    few, many = (peak_of_hypergradient(ITD(memory=1), GradientDescent(D, 0.01)) for D in (5, 25))
    assert (many - few) / 20 == pytest.approx(VECTOR, rel=0.01)


@pytest.mark.parametrize(
    "make",
    [
        lambda D: ITDBiO(inner_steps=D, inner_lr=0.01, outer_lr=1e-6, memory=1),
        lambda D: Reverse(inner_steps=D, inner_lr=0.01, outer_lr=1e-6, checkpoint=1),
    ],
    ids=["itd-bio", "reverse"],
)
def test_memory_of_a_run_with_itd_grows_by_one_vector_an_inner_step(make):
    few, many = (peak_of_run(make(D), 2) for D in (5, 15))
    assert (many - few) / 10 == pytest.approx(VECTOR, rel=0.01)


def test_truncation_stores_the_last_steps_only():
    five = ITD(truncate=5, memory=1)
    few, many = (peak_of_hypergradient(five, GradientDescent(D, 0.01)) for D in (6, 24))
    assert many < few + VECTOR / 8
    inner = GradientDescent(20, 0.01)
    kept = [peak_of_hypergradient(ITD(truncate=K, memory=1), inner) for K in (5, 15)]
    assert (kept[1] - kept[0]) / 10 == pytest.approx(VECTOR, rel=0.01)


def test_checkpoints_hold_a_stretch_of_graphs_and_where_the_others_start():
    """Of 25 steps in stretches of 5, five graphs and four vectors."""
    inner = GradientDescent(25, 0.01)
    every, stretches, one = (
        peak_of_hypergradient(ITD(checkpoint=n), inner) / VECTOR for n in (25, 5, 1)
    )
    graph = (every - one + 24) / 24
    assert graph > 3, "or there would be no need for stretches"
    assert stretches - one == pytest.approx(4 * graph + 4 - 24, abs=2)


def test_a_limit_in_bytes_is_kept():
    """What the kept graphs take, beyond one at a time, is at most what was allowed."""
    inner = GradientDescent(60, 0.01)
    one = peak_of_hypergradient(ITD(memory=1), inner)
    for allowed in (20 * VECTOR, 80 * VECTOR):
        taken = peak_of_hypergradient(ITD(memory=f"{allowed}B"), inner)
        assert taken < one + allowed


def test_nothing_stays_alive_after_a_run_but_its_result():
    two_levels = problem()
    algorithm = AIDBiO(inner_steps=10, inner_lr=0.01, cg_steps=10, outer_lr=1e-6)
    with LiveBytes() as live:
        result = bilevel.minimize(two_levels, algorithm, steps=3)
    gc.collect()
    held = [result.y, *(p for p in result.state.points.values() if len(p) > 1000)]
    storages = {tensor.untyped_storage()._cdata for tensor in held}
    assert len(storages) * VECTOR <= live.now < (len(storages) + 0.1) * VECTOR
    del held, result
    gc.collect()
    assert live.now < 0.1 * VECTOR


def test_stochastic_itd_stores_its_batches_as_row_numbers():
    data = torch.linspace(0, 1, 1000).double()
    p = bilevel.Problem(
        outer=lambda x, y, batch: (y - 1).square().sum() * batch.data.mean(),
        inner=lambda x, y, batch: (y - x.sum()).cosh().sum() * batch.data.mean(),
        x0=torch.ones(2).double(),
        y0=torch.zeros(SIZE).double(),
        outer_data=data,
        inner_data=data,
    )
    few, many = (
        peak(
            lambda D=D: bilevel.hypergradient(
                p, p.x0, p.y0, method=ITD(memory=1), inner=SGD(D, 0.01, batch=10)
            )
        )
        for D in (5, 15)
    )
    assert (many - few) / 10 == pytest.approx(VECTOR, rel=0.05)
