"""The four blocks by hand: the numbers of autograd, and only where they may stand for it."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import get_ident

import numpy as np
import pytest
import torch
from bilevel.few_shot import FourBlocks, LearnedHead, WholeNetwork, ZeroHead
from torch import nn

import bilevel
from bilevel import kernels as compiled
from bilevel.algorithms import MAML
from bilevel.models.heads.embedded import side_by_side
from bilevel.models.heads.oracle import HeadOracle
from bilevel.models.heads.recording import Scratch
from bilevel.oracles import AutogradOracle, make
from bilevel.oracles.autograd import Recording

from ...truth.dense_truth import relative
from .few_shot_cases import direction, network, problem, some_point

pytest.importorskip("numba")
from bilevel.kernels import pixels as kernels
from bilevel.models.heads import passes

SHAPES = [
    (1, 16, 4, 6),
    (3, 32, 5, 7),
    (3, 47, 2, 4),
    (2, 21, 3, 3),
    (1, 28, 64, 2),
    (3, 21, 16, 3),
]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def blocks(channels, size, filters, dtype=torch.float64):
    """With scales of both signs and a scale of zero."""
    made = FourBlocks(channels, size, filters, seed=1).to(dtype)
    with torch.no_grad():
        for scale, shift in zip(made.scales, made.shifts, strict=True):
            scale.copy_(torch.randn(scale.shape, generator=generator(2)))
            scale[0] = 0
            shift.copy_(0.5 * torch.randn(shift.shape, generator=generator(3)) + 0.2)
    return made


def pictures(n, channels, size, dtype=torch.float64):
    return torch.randn(n, channels, size, size, generator=generator(4)).to(dtype)


def by_hand(made, images, covector, scratch=None):
    parameters = {name: p.detach() for name, p in made.named_parameters()}
    found = made.passes(parameters, images, scratch or Scratch())
    return found.value, found.pull(covector)


def by_autograd(made, images, covector):
    z, parameters = made(images), dict(made.named_parameters())
    parts = torch.autograd.grad(z, list(parameters.values()), covector)
    return z.detach(), dict(zip(parameters, parts, strict=True))


def greatest_error(made, images):
    covector = torch.randn(len(images), made.features, generator=generator(5)).to(images.dtype)
    (z, ours), (truth, theirs) = (way(made, images, covector) for way in (by_hand, by_autograd))
    assert sorted(ours) == sorted(theirs)
    assert all(theirs[name].any() for name in theirs)
    return max(relative(z, truth), *(relative(ours[name], theirs[name]) for name in theirs))


@pytest.mark.parametrize(("channels", "size", "filters", "n"), SHAPES)
def test_values_and_derivatives_are_those_of_autograd(channels, size, filters, n):
    assert greatest_error(blocks(channels, size, filters), pictures(n, channels, size)) < 1e-11


@pytest.mark.parametrize("piece", [1, 20_000, 100_000])
def test_pieces_of_any_size_give_the_same(monkeypatch, piece):
    monkeypatch.setattr(passes, "_PIECE", piece)
    assert greatest_error(blocks(3, 21, 4), pictures(7, 3, 21)) < 1e-11


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [2, 3])
def test_threads_share_the_images(count):
    with threads(count):
        assert greatest_error(blocks(3, 21, 4), pictures(2, 3, 21)) < 1e-11


@pytest.mark.parametrize("room", [0, 10_000, 2**30])  # for none, for some and for all
def test_tasks_side_by_side_give_the_derivative_of_one_after_another(room):
    stated, rows = problem(ZeroHead(0.05), count=5), torch.tensor([3, 0, 4, 1, 2])
    x, y = some_point(stated)
    found = []
    for count in (1, 2, 3):
        with threads(count):
            oracle = HeadOracle(stated.model.form, stated.inner_data, graph_bytes=room)
            covector = oracle.linearize(x, y, rows).cross(direction(y))
            found.append(oracle.pull(x, covector, rows))
            assert torch.get_num_threads() == count
    assert max(relative(other, found[0]) for other in found[1:]) < 1e-13


def test_side_by_side_operations_of_torch_have_one_thread_each():
    with threads(2):
        seen = side_by_side(lambda i: (i, torch.get_num_threads()), [4, 5, 6])
        assert [i for i, _ in seen] == [4, 5, 6]
        assert {count for _, count in seen} == {1}
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 2


def test_a_task_that_fails_side_by_side_raises_its_error():
    with threads(2), pytest.raises(ZeroDivisionError):
        side_by_side(lambda i: 1 // i, [1, 0])


class Threaded(nn.Module):
    """A user's own module, which knows the threads that it ran in."""

    def __init__(self):
        super().__init__()
        self.embedding, self.seen = network(), set()

    def forward(self, images):
        self.seen.add(get_ident())
        return self.embedding(images)


def test_a_users_own_module_never_runs_in_another_thread():
    """Its parameters are exchanged while it runs: two threads would see one another's."""
    module = Threaded()
    stated = problem(ZeroHead(), count=5, embedding=module)
    with threads(2):
        oracle, rows = make(stated), torch.tensor([0, 1, 2])
        covector, _ = oracle.outer(stated.x0, stated.y0, rows).gradient()
        oracle.pull(stated.x0, covector, rows)
    assert module.seen == {get_ident()}


def test_automatic_precision_is_seen_though_other_threads_do_not_have_it():
    stated = problem(ZeroHead(), count=5, dtype=torch.float32)
    with threads(2), torch.autocast("cpu", torch.bfloat16):
        embedded = make(stated).embedded(stated.x0, torch.tensor([0, 1]))
    assert all(isinstance(kept, Recording) for kept in embedded._kept.values())
    assert len(embedded._kept) == 2


def test_images_that_lie_channels_last_give_the_same():
    images = pictures(4, 3, 21).contiguous(memory_format=torch.channels_last)
    assert greatest_error(blocks(3, 21, 4), images) < 1e-11


def test_of_equal_pixels_the_first_is_taken_as_torch_takes_it():
    made, images = blocks(1, 16, 3), pictures(5, 1, 16)
    with torch.no_grad():
        made.weights[0][1], made.weights[2][2] = 0, 0  # channels without a difference
    assert greatest_error(made, images) < 1e-11


def test_a_large_mean_loses_no_digits_of_the_variance():
    noise = np.random.default_rng(0).integers(-8, 9, size=(2, 20, 20, 3))
    Z = (noise + 100_000).astype(np.float32)
    means, squares = np.empty((2, 2, 3))
    kernels.pool(Z, np.ones(3, Z.dtype), np.empty((2, 10, 10, 3), Z.dtype), means, squares, 0, 2)
    assert means == pytest.approx(Z.mean((1, 2), np.float64), rel=1e-12)
    assert squares == pytest.approx(400 * noise.var((1, 2)), rel=1e-6)


def test_in_single_precision_the_error_is_that_of_single_precision():
    made, images = blocks(3, 32, 8, torch.float32), pictures(8, 3, 32)
    truth = copy.deepcopy(made).double()(images).detach()
    z, _ = by_hand(made, images.float(), torch.zeros(8, made.features))
    assert z.dtype == torch.float32
    assert relative(z.double(), truth) < 1e-5


def test_what_is_not_a_number_stays_visible():
    made, images = blocks(1, 16, 4), pictures(5, 1, 16)
    images[2, 0, 7, 7] = torch.nan
    covector = torch.ones(5, made.features).double()
    (z, ours), (truth, theirs) = (way(made, images, covector) for way in (by_hand, by_autograd))
    assert z.isnan().all()
    assert truth.isnan().all()
    assert all(ours[name].isnan().any() == theirs[name].isnan().any() for name in theirs)


def test_nothing_is_written_to_what_is_given():
    made, images = blocks(3, 21, 4), pictures(4, 3, 21)
    covector = torch.randn(4, made.features, generator=generator()).double()
    given = [images, covector, *made.parameters()]
    before = [t.detach().clone() for t in given]
    by_hand(made, images, covector)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))
    assert all(p.grad is None and p.requires_grad for p in made.parameters())


class CountingScratch(Scratch):
    """Knows which tensors are out."""

    def __init__(self):
        super().__init__()
        self.out, self.all = set(), set()

    def take(self, shape, dtype):
        tensor = super().take(shape, dtype)
        self.out.add(tensor.data_ptr())
        self.all.add(tensor.data_ptr())
        return tensor

    def give(self, *tensors):
        super().give(*tensors)
        self.out -= {tensor.data_ptr() for tensor in tensors}


def test_memory_is_used_again_by_the_next_task_and_results_are_kept():
    made, scratch = blocks(3, 21, 4), CountingScratch()
    tasks = pictures(8, 3, 21).split(4)
    covector = torch.randn(4, made.features, generator=generator()).double()
    alone = [by_hand(made, task, covector) for task in tasks]
    together, used = [], []
    for task in tasks:
        together.append(by_hand(made, task, covector, scratch))
        used.append(len(scratch.all))
        assert not scratch.out
    assert used[0] == used[1] > 8
    for (z, parts), (truth, theirs) in zip(together, alone, strict=True):
        assert torch.equal(z, truth)
        assert all(torch.equal(parts[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(("room", "kept"), [(0, 0), (1, 0), (2**30, 3)])
def test_what_is_not_kept_for_the_way_back_is_given_back_at_once(room, kept):
    stated, scratch = problem(ZeroHead(), count=5), CountingScratch()
    oracle = HeadOracle(stated.model.form, stated.inner_data, graph_bytes=room)
    oracle._scratch = scratch
    oracle.embedded(stated.x0, torch.tensor([0, 1, 2]))
    assert len(scratch.out) == kept * 7  # four M and three Z a task


def test_two_tasks_that_are_kept_at_the_same_time_do_not_disturb_one_another():
    made, scratch = blocks(3, 21, 4), Scratch()
    covector = torch.randn(4, made.features, generator=generator()).double()
    parameters = {name: p.detach() for name, p in made.named_parameters()}
    tasks = pictures(8, 3, 21).split(4)
    kept = [made.passes(parameters, task, scratch) for task in tasks]
    for one, task in zip(kept, tasks, strict=True):
        truth = by_autograd(made, task, covector)[1]
        found = one.pull(covector)
        assert max(relative(found[name], truth[name]) for name in truth) < 1e-11


class Louder(FourBlocks):
    """A user's own kind."""

    def forward(self, images):
        return 2 * super().forward(images)


def with_hook(register):
    made = network()
    getattr(made, register)(lambda module, images, z=None: None)
    return made


def with_parameter():
    made = network()
    made.other = nn.Parameter(torch.ones(1))
    return made


CHANGED = {
    "subclass": lambda: Louder(1, 16, 4),
    "hook": lambda: with_hook("register_forward_hook"),
    "hook before": lambda: with_hook("register_forward_pre_hook"),
    "parameter": with_parameter,
}


def by_both_oracles(embedding):
    """How far the derivative is from that of automatic differentiation of the losses."""
    stated = problem(LearnedHead(), count=5, embedding=embedding)
    x, y = some_point(stated)
    rows, v = torch.tensor([3, 1]), direction(y)
    fast, truth = make(stated), AutogradOracle(stated)
    found = fast.pull(x, fast.linearize(x, y, rows).cross(v), rows)
    return relative(found, truth.linearize(x, y, rows).cross(v))


@pytest.mark.parametrize("change", CHANGED)
def test_a_network_that_was_changed_is_left_to_autograd(change):
    made = CHANGED[change]()
    assert not made.serves({}, pictures(2, 1, 16, torch.float32))
    assert by_both_oracles(made) < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_precisions_are_left_to_autograd(dtype):
    made, images = network(), pictures(2, 1, 16, torch.float32)
    assert made.serves({}, images)
    assert not made.serves({}, images.to(dtype))
    assert not made.to(dtype).serves({}, images.to(dtype))


def test_automatic_precision_is_left_to_autograd():
    with torch.autocast("cpu", torch.bfloat16):
        assert not network().serves({}, pictures(2, 1, 16, torch.float32))


def test_without_numba_autograd_gives_the_same(monkeypatch):
    stated = problem(ZeroHead(0.05), count=5)
    x, y = some_point(stated)
    found = []
    for there in (True, False):
        monkeypatch.setattr(compiled, "usable", lambda there=there: there)
        oracle = make(stated)
        covector, _ = oracle.outer(x, y, torch.tensor([0, 4])).gradient()
        found.append(oracle.pull(x, covector, torch.tensor([0, 4])))
    assert 0 < relative(found[0], found[1]) < 1e-12  # by two ways, which differ in rounding


def test_parameters_that_are_not_learned_stay_and_have_no_derivative():
    embedding = network().double()
    embedding.weights[1].requires_grad_(False)
    embedding.scales[3].requires_grad_(False)
    assert by_both_oracles(embedding) < 1e-12


def test_networks_that_adapt_are_differentiated_twice_by_autograd(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("passes give one derivative, and MAML needs two")

    monkeypatch.setattr(FourBlocks, "passes", refuse)
    result = bilevel.minimize(problem(WholeNetwork()), MAML(inner_steps=2), steps=1)
    assert result.history[-1].hypergradient_norm > 0
