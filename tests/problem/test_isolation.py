"""What belongs to the user stays as it was."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

import bilevel
from bilevel.errors import UserError

ROWS = 40
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(ROWS, 3, generator=GENERATOR)
T = torch.randn(ROWS, 1, generator=GENERATOR)


def make_net(dropout=0.0):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        # Batch normalisation over the numbers of a row too, so that one row is batch enough.
        normalise = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.BatchNorm1d(1), nn.Flatten())
        return nn.Sequential(normalise, nn.Linear(3, 4), nn.Dropout(dropout), nn.Linear(4, 1))


def net_losses(net):
    def loss(y, batch):
        rows, targets = batch.data
        return (functional_call(net, y, (rows,)) - targets).square().mean()

    def inner(x, y, batch):
        return loss(y, batch) + sum(
            (weight * part.square()).sum() for weight, part in zip(x.exp(), y.values(), strict=True)
        )

    return lambda x, y, batch: loss(y, batch), inner


def net_problem(net):
    outer, inner = net_losses(net)
    return bilevel.Problem(
        outer=outer,
        inner=inner,
        x0=torch.full((6,), -1.0),
        y0=dict(net.named_parameters()),
        outer_data=(X, T),
        inner_data=(X, T),
    )


class Everything:
    """All that a call could change behind the user's back."""

    def __init__(self, *modules):
        self.modules = modules
        self.modes = [module.training for module in modules]
        self.states = [copy.deepcopy(module.state_dict()) for module in modules]
        self.data = X.clone(), T.clone()
        self.random = self.random_states()
        self.settings = self.global_settings()

    @staticmethod
    def random_states():
        numpy_state = np.random.get_state()  # noqa: NPY002
        return (
            torch.get_rng_state().tolist(),
            numpy_state[1].tolist(),
            numpy_state[2],
            random.getstate(),
        )

    @staticmethod
    def global_settings():
        return (
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
        )

    def assert_as_before(self):
        for module, mode, state in zip(self.modules, self.modes, self.states, strict=True):
            assert module.training == mode
            assert module.state_dict().keys() == state.keys()
            for name, value in module.state_dict().items():
                assert torch.equal(value, state[name]), name
            assert all(parameter.grad is None for parameter in module.parameters())
            assert all(parameter.requires_grad for parameter in module.parameters())
        assert torch.equal(X, self.data[0])
        assert torch.equal(T, self.data[1])
        assert self.random_states() == self.random
        assert self.global_settings() == self.settings


def test_loss_by_itself_does_change_statistics_and_random_state():
    """Or the tests below would prove nothing."""
    net = make_net(dropout=0.5)
    before = Everything(net)
    _, inner = net_losses(net)
    with torch.random.fork_rng():
        inner(
            torch.zeros(6), dict(net.named_parameters()), bilevel.Batch((X, T), torch.arange(ROWS))
        )
        with pytest.raises(AssertionError):
            before.assert_as_before()
        assert net[0][1].num_batches_tracked == 1


def test_problem_touches_nothing():
    net = make_net(dropout=0.5)
    before = Everything(net)
    net_problem(net)
    before.assert_as_before()


@pytest.mark.parametrize("entry", bilevel.algorithms.registry().values(), ids=lambda e: e.name)
def test_minimize_touches_nothing(entry):
    net = make_net(dropout=0.1)
    before = Everything(net)
    try:
        result = bilevel.minimize(net_problem(net), entry.make(), steps=2)
        assert result.counts.gc_f > 0
    except UserError as refusal:
        assert "differences of their gradients mean nothing" in str(refusal)  # noqa: PT017
    before.assert_as_before()


@pytest.mark.parametrize(
    ("method", "inner"),
    [
        (bilevel.AID(bilevel.linear.CG(steps=3)), None),
        (bilevel.AID(bilevel.linear.SampledNeumann(3, 0.1, batch=5)), bilevel.inner.SGD(2, 0.1, 5)),
        (bilevel.ITD(), bilevel.inner.GradientDescent(3, 0.1)),
    ],
    ids=["aid", "sampled aid", "itd"],
)
def test_hypergradient_touches_nothing(method, inner):
    net = make_net(dropout=0.5)
    problem = net_problem(net)
    before = Everything(net)
    y = dict(net.named_parameters())
    bilevel.hypergradient(problem, torch.zeros(6), y, method=method, inner=inner)
    before.assert_as_before()


def test_solve_inner_and_check_hypergradient_touch_nothing():
    net = make_net().eval()  # an exact solution needs a loss without noise
    problem = net_problem(net)
    before = Everything(net)
    bilevel.solve_inner(problem, torch.zeros(6), bilevel.inner.LBFGS(1e-2))
    bilevel.check_hypergradient(problem, torch.zeros(6))
    before.assert_as_before()


@pytest.mark.parametrize("where", ["construction", "run"])
def test_loss_that_fails_leaves_no_trace_either(where):
    net = make_net(dropout=0.5)
    before = Everything(net)
    calls = []

    def inner(x, y, batch):
        functional_call(net, y, (batch.data[0],))
        calls.append(1)
        if where == "construction" or len(calls) > 3:
            raise ValueError("it broke")
        return sum(((part - x.sum()) ** 2).sum() for part in y.values())

    def run():
        problem = bilevel.Problem(
            outer=net_losses(net)[0],
            inner=inner,
            x0=torch.zeros(6),
            y0=dict(net.named_parameters()),
            outer_data=(X, T),
            inner_data=(X, T),
        )
        bilevel.minimize(problem, bilevel.algorithms.AIDBiO(), steps=5)

    with pytest.raises(ValueError, match="it broke"):
        run()
    before.assert_as_before()


def test_users_x_and_y_are_neither_written_to_nor_shared():
    x0 = {"a": torch.ones(2).double().requires_grad_()}
    y0 = [torch.zeros(2).double()]
    problem = bilevel.Problem(
        outer=lambda x, y: (y[0] - 1).square().sum(),
        inner=lambda x, y: (y[0] - x["a"]).square().sum(),
        x0=x0,
        y0=y0,
    )
    result = bilevel.minimize(problem, bilevel.algorithms.AIDBiO(), steps=3)
    h = bilevel.hypergradient(problem, x0, y0)
    for part in (result.x["a"], result.y[0], h.value["a"], h.y[0], h.v[0]):
        assert not part.requires_grad
        part.fill_(9.0)
    assert torch.equal(x0["a"].detach(), torch.ones(2).double())
    assert x0["a"].grad is None
    assert torch.equal(y0[0], torch.zeros(2).double())
    again = bilevel.minimize(problem, bilevel.algorithms.AIDBiO(), steps=3)
    assert not torch.equal(again.x["a"], result.x["a"]), "the problem's own start was written to"


def test_a_run_is_not_moved_by_the_global_random_state():
    problem = net_problem(make_net(dropout=0.5))
    algorithm = bilevel.algorithms.registry()["stocbio"].make()
    found = []
    for _ in range(2):
        torch.rand(7)  # moves the global state
        found.append(bilevel.minimize(problem, algorithm, steps=2, seed=3).x)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], bilevel.minimize(problem, algorithm, steps=2, seed=4).x)
