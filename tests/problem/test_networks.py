"""Modules as variables: the losses are handed modules; the user's own are never written to."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import bilevel
from bilevel.oracles.autograd import AutogradOracle

from ..truth import networks as truth

_F64 = torch.float64
ROWS = torch.linspace(-1, 1, 12, dtype=_F64).reshape(4, 3)


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(3, 2, batch_first=True)

    def forward(self, rows: Tensor) -> Tensor:
        return self.cell(rows[:, None].expand(-1, 3, -1))[0][:, -1]


class Adapted(nn.Module):
    """A low-rank adapter as a parametrisation of a frozen weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(2, 1)), nn.Parameter(torch.full((1, 3), 0.1))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.a @ self.b


def lora() -> nn.Module:
    layer = nn.Linear(3, 2)
    layer.requires_grad_(False)
    nn.utils.parametrize.register_parametrization(layer, "weight", Adapted())
    return layer


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True)
        self.first = nn.Linear(3, 4)

    def forward(self, rows: Tensor) -> Tensor:
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            return self.layer(self.first(rows)[None])[0]


KINDS: dict[str, Any] = {
    "perceptron": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
    "layer norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)),
    "tied and frozen": lambda: truth.Net(dropout=0.0),
    "recurrent": Gru,
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)).eval(),
    "adapter": lora,
    "attention": Attention,
}


def filled(kind: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module: nn.Module = KINDS[kind]().double()
    return module


def elsewhere(module: nn.Module) -> nn.Module:
    """The same with other numbers, so that a tensor that was not swapped shows."""
    other = copy.deepcopy(module)
    with torch.no_grad():
        for number, parameter in enumerate(other.parameters()):
            if parameter.requires_grad:
                generator = torch.Generator().manual_seed(number)
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return other


def g(x: Tensor, module: nn.Module) -> Tensor:
    return (module(ROWS) - x).pow(4).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_products_are_those_of_the_module_itself(kind: str) -> None:
    module = filled(kind)
    x = torch.ones((), dtype=_F64, requires_grad=True)
    problem = bilevel.Problem(g, g, x.detach(), module)
    moved = elsewhere(module)
    own = [p for p in moved.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(g(x, moved), own, create_graph=True)
    v = [torch.sin(torch.arange(p.numel(), dtype=_F64)).reshape(p.shape) for p in own]
    exact = torch.autograd.grad(slopes, [*own, x], v)
    y = problem.y_structure.flatten(moved)
    around = AutogradOracle(problem).linearize(problem.x0, y)
    hvp, cross = around.both(truth.flat(v))
    assert torch.equal(around.gradient(), truth.flat(slopes))
    torch.testing.assert_close(hvp, truth.flat(exact[:-1]), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(cross, exact[-1].reshape(1), rtol=1e-12, atol=1e-12)


def test_a_run_writes_to_no_module_and_no_random_state() -> None:
    net, weights = truth.net(), truth.weight_net()
    before = [truth.module_state(net), truth.module_state(weights)]
    given = {"x0": weights, "y0": net, "inner_data": (truth.X, truth.LABELS)}
    state = torch.random.get_rng_state()
    problem = bilevel.Problem(truth.outer, truth.inner, outer_data=truth.SOME.data, **given)
    bilevel.minimize(problem, itd(), steps=2)
    for module, kept in zip((net, weights), before, strict=True):
        assert all(torch.equal(kept[n], t) for n, t in module.state_dict().items())
        assert all(p.grad is None for p in module.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)


def itd(**changed: Any) -> Any:
    inner = bilevel.inner.Steps(bilevel.updates.Momentum(0.1), 3, keep=True)
    given = {"inner": inner, "outer": bilevel.updates.Adam(0.01)}
    return bilevel.algorithms.ITDBiO(**(given | changed))


def test_statistics_of_batch_norm_move_as_in_training_and_come_back() -> None:
    unrolled = truth.Unrolled()
    unrolled.steps(truth.momentum, 3)
    net = truth.net()
    result = bilevel.minimize(truth.problem(y0=net), itd(), steps=1)
    trained = result.y_module()
    for name, buffer in trained.named_buffers():
        torch.testing.assert_close(buffer, unrolled.buffers[f"y.{name}"], rtol=1e-12, atol=1e-12)
    assert trained.norm.num_batches_tracked == 3
    assert net.norm.num_batches_tracked == 0
    named = dict(trained.named_parameters())
    assert all(torch.equal(named[name], value) for name, value in result.y.items())
    assert trained.again is trained.middle, "ties are kept"
    assert not trained.last.bias.requires_grad, "what was frozen still is"
    assert torch.equal(trained.last.bias, net.last.bias)
    assert isinstance(result.x_module(), nn.Sequential)


def test_statistics_do_not_depend_on_how_many_graphs_are_kept() -> None:
    """A step that is run again on the way back has been counted already."""
    few, many = (
        bilevel.minimize(truth.problem(), itd(memory=memory), steps=2).state.buffers
        for memory in (2, "256MB")
    )
    assert few.keys() == many.keys()
    assert all(torch.equal(few[name], many[name]) for name in many)


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    runs = [bilevel.minimize(truth.problem(), itd(), steps=2, seed=s) for s in (1, 1, 2)]
    assert torch.equal(runs[0].state.x, runs[1].state.x)
    assert not torch.equal(runs[0].state.x, runs[2].state.x)


def test_a_resumed_run_has_the_bits_of_an_unbroken_one(tmp_path: Any) -> None:
    whole = bilevel.minimize(truth.problem(), itd(), steps=4)
    bilevel.minimize(truth.problem(), itd(), steps=2, checkpoint=tmp_path)
    resumed = bilevel.minimize(truth.problem(), itd(), steps=4, checkpoint=tmp_path)
    assert torch.equal(whole.state.x, resumed.state.x)
    assert torch.equal(whole.state.y, resumed.state.y)
    for name, buffer in whole.state.buffers.items():
        assert torch.equal(buffer, resumed.state.buffers[name]), name


def test_a_loss_in_evaluation_mode_sees_todays_statistics() -> None:
    """By the user's own .eval(), or asked for; the mode does not last."""

    def evaluated(weights: Any, net: Any, batch: Any) -> Tensor:
        net.eval()
        return truth.outer(weights, net, batch)

    unrolled = truth.Unrolled()
    unrolled.steps(truth.descent, 3)
    exact = unrolled.hypergradient(evaluated)
    for f in (evaluated, bilevel.evaluation_mode(truth.outer)):
        found = bilevel.hypergradient(
            truth.problem(outer=f),
            truth.weight_net(),
            truth.net(),
            bilevel.ITD(),
            bilevel.inner.GradientDescent(3, 0.1),
        )
        torch.testing.assert_close(truth.flat(found.value.values()), exact, rtol=1e-8, atol=1e-12)


def test_metrics_and_callbacks_are_handed_modules_with_todays_statistics() -> None:
    seen = []

    def batches(weights: Any, net: Any) -> float:
        net.norm.running_mean.zero_()  # a copy: it must not matter
        return float(net.norm.num_batches_tracked)

    result = bilevel.minimize(
        truth.problem(),
        itd(),
        steps=2,
        metrics={"batches": batches},
        callbacks=[lambda progress: seen.append(int(progress.y.norm.num_batches_tracked))],
    )
    assert [record.metrics["batches"] for record in result.history] == [3, 6]
    assert seen == [3, 6]
    plain = bilevel.minimize(truth.problem(), itd(), steps=2)
    assert torch.equal(result.state.x, plain.state.x)


def test_parameters_chosen_by_name_are_the_variables_and_the_rest_stays() -> None:
    net = truth.net(0.0)
    chosen = bilevel.parameters(net, where=lambda name: name.startswith("last.weight"))
    problem = truth.problem(0.0, y0=chosen)
    assert problem.y_structure.size == 8
    trained = bilevel.minimize(problem, itd(), steps=1).y_module()
    assert not torch.equal(trained.last.weight, net.last.weight)
    assert torch.equal(trained.first.weight, net.first.weight)


def test_one_network_may_be_x_in_one_part_and_y_in_another() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double()

    def loss(x: Any, y: Any) -> Tensor:
        assert x is y
        return (y(ROWS) - 1).square().mean() + 0.1 * y[2].weight.square().sum()

    problem = bilevel.Problem(
        loss,
        loss,
        bilevel.parameters(net, where=lambda name: name[0] == "0"),
        bilevel.parameters(net, where=lambda name: name[0] == "2"),
    )
    result = bilevel.minimize(problem, itd(), steps=1)
    trained = result.y_module()
    assert torch.equal(trained[0].weight, result.x["0.weight"])
    assert torch.equal(trained[2].weight, result.y["2.weight"])


def test_modules_may_stand_among_tensors() -> None:
    def inner(x: Any, y: Any) -> Tensor:
        return (y["net"](ROWS) - x + y["shift"]).square().mean()

    problem = bilevel.Problem(
        lambda x, y: inner(0.5, y),
        inner,
        torch.ones(1, dtype=_F64),
        {"net": nn.Linear(3, 1).double(), "shift": torch.zeros(1, dtype=_F64)},
    )
    result = bilevel.minimize(problem, itd(), steps=1)
    assert set(result.y) == {"net", "shift"}
    assert isinstance(result.y_module()["net"], nn.Linear)


class Hides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1).double()
        self.hidden = [self.layer.weight]

    def forward(self, rows: Tensor) -> Tensor:
        return rows @ self.hidden[0].T + self.layer.bias


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: truth.problem(y0=truth.net().requires_grad_(False)), "requires a gradient"),
        (lambda: bilevel.parameters(truth.net(), where=lambda name: False), "chosen by `where`"),
        (lambda: bilevel.Problem(g, g, torch.ones(()).double(), Hides()), "kept in a list"),
        (
            lambda: bilevel.Problem(
                lambda x, y: g(1.0, y), lambda x, y: g(1.0, y), *[nn.Linear(3, 1).double()] * 2
            ),
            "is a variable twice",
        ),
    ],
    ids=["frozen", "none chosen", "a hidden tensor", "twice"],
)
def test_what_cannot_work_is_told(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_copy_with_weight_norm_is_the_users_own_kind() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).double()
    problem = bilevel.Problem(g, g, torch.ones((), dtype=_F64), layer)
    copied = bilevel.minimize(problem, itd(), steps=1).y_module()
    assert "forward" not in vars(copied.parametrizations.weight[0])
    assert copied(ROWS).shape == (4, 2)


def test_a_pruned_layer_stays_pruned_and_comes_back_whole() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    prune.l1_unstructured(net[0], "weight", 0.5)
    before = net[0].weight_orig.detach().clone()
    problem = truth.problem(y0=net)
    result = bilevel.minimize(
        problem,
        bilevel.algorithms.ITDBiO(
            inner=bilevel.inner.Steps(bilevel.updates.Momentum(0.1), 2, keep=True), outer_lr=0.1
        ),
        steps=2,
    )
    trained = result.y_module()
    rows = torch.ones(1, 3).double()
    mask = net[0].weight_mask
    pruned = nn.functional.linear(rows, trained[0].weight_orig * mask, trained[0].bias)
    torch.testing.assert_close(trained[0](rows), pruned)
    assert torch.equal(net[0].weight_orig, before)
    assert not torch.equal(trained[0].weight_orig, before)


class Remembers(nn.Module):
    """Notes, in plain attributes, how often it was called and what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(3, 2), 0
        self.seen: Tensor | None = None

    def forward(self, rows: Tensor) -> Tensor:
        self.calls += 1
        self.seen = self.layer(rows)
        return self.seen / self.calls


def test_plain_attributes_are_as_they_were_in_every_call() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = Remembers().double()
    with pytest.warns(RuntimeWarning, match=r"Remembers\.calls, which is set back .* as a buffer"):
        problem = bilevel.Problem(g, g, torch.ones((), dtype=_F64), module)
    steps = bilevel.inner.Steps(bilevel.updates.Descent(0.001), 4)
    found = [
        bilevel.hypergradient(problem, problem.x0.view(()), module, bilevel.ITD(memory=m), steps)
        for m in (1, 4)
    ]
    torch.testing.assert_close(found[0].value, found[1].value, rtol=1e-12, atol=0)
    copied = bilevel.minimize(problem, itd(), steps=1).y_module()
    assert copied.calls == 0
    assert copied.seen is None


def hooked() -> nn.Module:
    layer = nn.Linear(3, 2).double()
    layer.weight.register_hook(lambda slope: 0 * slope)
    return layer


def shared() -> dict[str, nn.Module]:
    first = nn.Linear(3, 3).double()
    return {"a": nn.Sequential(first), "b": nn.Sequential(first)}


@pytest.mark.parametrize(
    ("y0", "words"),
    [
        (lambda: nn.LazyLinear(2).double(), "no shape yet .a lazy layer.: call the module once"),
        (hooked, "'weight' has a hook on its gradient, which would not run"),
        (shared, "give both as one torch.nn.ModuleDict"),
        (
            lambda: nn.Sequential(nn.Linear(3, 2), nn.LazyBatchNorm1d(affine=False)).double(),
            "'1.running_mean' has no shape yet",
        ),
        (lambda: {"net": nn.Linear(3, 2), "act": nn.ReLU()}, "without variables is left out"),
        (lambda: {"steps": torch.tensor(3)}, "leave out what is no variable"),
        (lambda: nn.Linear(3, 2).bfloat16(), "keep both in float32 .* torch.autocast"),
        (lambda: nn.Linear(3, 2, dtype=torch.complex128), "torch.view_as_real"),
    ],
)
def test_odd_modules_are_told_what_to_do(y0: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bilevel.Problem(g, g, torch.ones((), dtype=_F64), y0())


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda x, y, own: (g(x, y), 1), "got .tensor.* Return the loss alone"),
        (lambda x, y, own: g(x, y).item(), "no .item"),
        (lambda x, y, own: y(ROWS) - x, "Reduce it"),
        (lambda x, y, own: g(x, own), "inner loss does not depend on y"),
        (lambda x, y, own: g(x, y).bfloat16(), r"Inside autocast, .*net\(...\).float"),
        (lambda x, y, own: y.weight.mul_(2).sum(), "A loss must not write into what it is given"),
    ],
)
def test_odd_losses_are_told_what_to_do(loss: Any, words: str) -> None:
    """The last one calls a module of its own, whose parameters give it a graph."""
    own = nn.Linear(3, 2).double()
    with pytest.raises(ValueError, match=words):
        bilevel.Problem(g, lambda x, y: loss(x, y, own), torch.ones((), dtype=_F64), own)


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_loss_that_writes_into_its_variables_is_refused(name: str) -> None:
    """Through .data autograd does not see it, and the state would change."""

    def inner(x: Tensor, y: Any) -> Tensor:
        (x if name == "x" else y.weight).data.clamp_(max=0.1)
        return g(x, y)

    with pytest.raises(ValueError, match=f"inner loss writes into the {name} that it is given"):
        bilevel.Problem(g, inner, torch.ones((), dtype=_F64), nn.Linear(3, 2).double())


def test_result_of_a_tensor_has_no_module() -> None:
    problem = bilevel.Problem(lambda x, y: y @ y, lambda x, y: (y - x) @ (y - x), ROWS[0], ROWS[1])
    with pytest.raises(ValueError, match="x0 was not a module"):
        bilevel.minimize(problem, steps=1).x_module()


def test_a_generator_that_another_thread_moves_is_not_taken_for_the_losses_own() -> None:
    calls = []

    def inner(x: Tensor, y: Tensor) -> Tensor:
        if not calls:  # as a thread might, in the first call alone
            torch.default_generator.manual_seed(7)
        calls.append(None)
        return ((y - x) ** 2).sum()

    problem = bilevel.Problem(lambda x, y: (y**2).sum(), inner, torch.ones(2), torch.ones(2))
    assert not problem.chance.names

    def drawing(x: Tensor, y: Tensor) -> Tensor:
        return ((y - x) ** 2).sum() + 0 * torch.rand(())

    problem = bilevel.Problem(lambda x, y: (y**2).sum(), drawing, torch.ones(2), torch.ones(2))
    assert problem.chance.names == {"torch"}
