"""Embeddings: the four blocks are the textbook's, and a user's own module is left as it was."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from bilevel.few_shot import (
    FourBlocks,
    LearnedHead,
    Tasks,
    WholeNetwork,
    ZeroHead,
    accuracy,
    few_shot_problem,
)
from torch import nn

import bilevel
from bilevel.algorithms import MAML, AIDBiO, ITDBiO
from bilevel.datasets import Images
from bilevel.oracles import AutogradOracle, make

from ...truth.dense_truth import relative
from .few_shot_cases import direction, network, pictures, problem, smooth_network, some_point


def textbook(blocks, channels):
    """The same network of torch's own layers, in training mode."""
    layers = []
    for weight, scale, shift in zip(blocks.weights, blocks.scales, blocks.shifts, strict=True):
        width = len(scale)
        convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False, dtype=weight.dtype)
        normalisation = nn.BatchNorm2d(width, dtype=weight.dtype)
        with torch.no_grad():
            convolution.weight.copy_(weight)
            normalisation.weight.copy_(scale)
            normalisation.bias.copy_(shift)
        layers += [convolution, normalisation, nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten())


@pytest.mark.parametrize(("channels", "size", "filters"), [(1, 16, 4), (3, 32, 5), (3, 47, 2)])
def test_four_blocks_equal_the_textbook_in_value_and_gradient(channels, size, filters):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(7, channels, size, size, generator=generator).double() * 2 - 1
    ours = FourBlocks(channels, size, filters, seed=3).double()
    with torch.no_grad():
        for shift in ours.shifts:
            shift.normal_(std=0.3, generator=generator)
    theirs = textbook(ours, channels)
    z, truth = ours(images), theirs(images)
    assert z.shape == (7, ours.features)
    assert relative(z.detach(), truth.detach()) < 1e-12
    covector = torch.randn(z.shape, generator=generator).double()
    mine = torch.autograd.grad(z, [*ours.weights, *ours.scales, *ours.shifts], covector)
    norms = [layer for layer in theirs if isinstance(layer, nn.BatchNorm2d)]
    parameters = [layer.weight for layer in theirs if isinstance(layer, nn.Conv2d)]
    parameters += [norm.weight for norm in norms]
    parameters += [norm.bias for norm in norms]
    true = torch.autograd.grad(truth, parameters, covector)
    assert max(relative(a, b) for a, b in zip(mine, true, strict=True)) < 1e-12


@pytest.mark.parametrize(
    ("channels", "size", "filters", "features"),
    [(3, 32, 64, 256), (3, 84, 32, 800), (1, 28, 64, 64), (1, 16, 64, 64), (3, 33, 32, 128)],
)
def test_the_usual_sizes_have_the_usual_filters_and_features(channels, size, filters, features):
    blocks = FourBlocks(channels, size)
    assert [w.shape[:2] for w in blocks.weights] == [(filters, channels), *[(filters, filters)] * 3]
    assert blocks.features == features
    assert blocks(torch.rand(2, channels, size, size)).shape == (2, features)


def test_initial_weights_come_from_the_seed_and_leave_torchs_random_state_alone():
    before = torch.get_rng_state()
    first, again, other = (FourBlocks(1, 16, 4, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.weights, again.weights, strict=True))
    assert not torch.equal(first.weights[3], other.weights[3])


@pytest.mark.parametrize("embedding", [network, smooth_network])
def test_features_of_a_task_do_not_depend_on_the_tasks_beside_it(embedding):
    stated = problem(ZeroHead(), count=6, embedding=embedding())
    oracle, (x, y) = make(stated), some_point(stated)
    alone = oracle.embedded(x, torch.tensor([4])).values[0]
    assert torch.equal(oracle.embedded(x, torch.tensor([0, 4, 2])).values[1], alone)
    assert torch.equal(oracle.embedded(x, torch.tensor([4, 5])).values[0], alone)
    logits = oracle.query_logits(x, y, torch.tensor([4]))[0]
    assert torch.allclose(oracle.query_logits(x, y, torch.tensor([1, 4]))[1], logits, rtol=1e-13)


def test_features_are_normalised_over_support_and_query_images_of_the_task():
    stated = problem(ZeroHead(), count=6)
    oracle = make(stated)
    values = oracle.embedded(stated.x0, torch.tensor([4])).values[0]
    images = stated.inner_data.rows(torch.tensor([4]))[0]
    truth = network().double()(images).detach()
    assert relative(values[:, :-1], truth) < 1e-13
    assert torch.equal(values[:, -1], torch.ones(12).double())
    assert relative(network().double()(images[:6]).detach(), truth[:6]) > 1e-3


def test_networks_that_adapt_see_support_and_query_images_apart():
    stated = problem(WholeNetwork(), count=6)
    _, y = some_point(stated)
    rows = torch.tensor([4])
    images = stated.inner_data.rows(rows)
    for part in (slice(0, 6), slice(6, 12)):
        logits = stated.model.form.logits(y.view(6, -1)[rows], images[:, part])[0]
        own = stated.x_structure.unflatten(y.view(6, -1)[4])
        features = torch.func.functional_call(network(), own["embedding"], (images[0, part],))
        truth = features @ own["head"][:-1] + own["head"][-1]
        assert relative(logits, truth) < 1e-13


@pytest.mark.parametrize("learner", [ZeroHead(0.05), LearnedHead()], ids=str)
def test_a_users_own_module_gives_the_same_derivatives_as_autograd(learner):
    stated = problem(learner, count=5, embedding=smooth_network())
    fast, truth, rows = make(stated), AutogradOracle(stated), torch.tensor([3, 1])
    x, y = some_point(stated)
    v = direction(y)
    cross = fast.pull(x, fast.linearize(x, y, rows).cross(v), rows)
    assert relative(cross, truth.linearize(x, y, rows).cross(v)) < 1e-12
    outer = fast.pull(x, fast.outer(x, y, rows).gradient()[0], rows)
    assert relative(outer, truth.outer(x, y, rows).gradient()[0]) < 1e-12


def test_a_users_own_module_is_evaluated_in_its_mode():
    module = smooth_network()
    module(torch.randn(8, 1, 16, 16, generator=torch.Generator().manual_seed(0)))  # statistics
    for embedding in (module.train(), copy.deepcopy(module).eval()):
        stated = problem(ZeroHead(), count=5, embedding=embedding)
        values = make(stated).embedded(stated.x0, torch.tensor([1])).values[0, :, :-1]
        truth = copy.deepcopy(embedding).double()(stated.inner_data.rows(torch.tensor([1]))[0])
        assert relative(values, truth.detach()) < 1e-13


@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(
    ("learner", "algorithm"),
    [
        (ZeroHead(), ITDBiO(inner_steps=2)),
        (ZeroHead(), AIDBiO(inner_steps=2)),
        (LearnedHead(), MAML(inner_steps=2)),
        (WholeNetwork(), MAML(inner_steps=2)),
    ],
    ids=["itd-bio", "aid-bio", "anil", "maml"],
)
def test_a_users_own_module_is_left_as_it_was(learner, algorithm, mode):
    module = smooth_network().train(mode)
    before, random_state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    stated = problem(learner, embedding=module, dtype=torch.float32)
    result = bilevel.minimize(stated, algorithm, steps=2)
    accuracy(stated, algorithm, result.state.x, tasks=2)
    assert not torch.equal(result.state.x, stated.x0)
    assert list(module.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(part.training == mode for part in module.modules())
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_parameters_that_require_no_gradient_are_not_learned():
    module = smooth_network()
    module[0].requires_grad_(False)
    stated = problem(ZeroHead(), embedding=module, dtype=torch.float32)
    assert list(stated.x_structure.unflatten(stated.x0)["embedding"]) == ["1.weight", "1.bias"]
    result = bilevel.minimize(stated, ITDBiO(inner_steps=2), steps=1)
    assert result.x["embedding"]["1.weight"].shape == (4,)


def test_learning_makes_tasks_easier_that_one_channel_tells_apart():
    """The class is in the stripes of channel 0; the others are noise, and louder."""
    rng = np.random.default_rng(0)
    shape = (6, 12, 16, 16)
    noise = rng.integers(256, size=(*shape, 3))
    stripes = 128 + 40 * np.sin(np.arange(16) * (1 + np.arange(6)[:, None]))
    noise[..., 0] = stripes[:, None, None, :] + rng.normal(0, 10, shape)
    pixels = noise.reshape(-1, 16, 16, 3).astype(np.uint8)
    images = Images(pixels, np.repeat(np.arange(6), 12), pictures().classes)
    tasks = Tasks(images, ways=3, shots=2, queries=4)
    stated = few_shot_problem(tasks, FourBlocks(3, 16, 8), ZeroHead(0.01), batch=4)
    algorithm = ITDBiO(
        inner_steps=5, inner_lr=0.5, outer=bilevel.updates.Adam(0.01), warm_start=False
    )
    result = bilevel.minimize(stated, algorithm, steps=20, evaluate_every=20)
    before = accuracy(stated, algorithm, stated.x0, 20).mean
    after = accuracy(stated, algorithm, result.state.x, 20).mean
    assert after > before + 0.1
    assert after > 0.9
