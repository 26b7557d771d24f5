"""A loss may come to its module in many ways: its buffers stay as they were in each."""

import functools

import pytest
import torch
from torch import nn

import bilevel
from bilevel.problem.isolation import modules_of


def make_net():
    return nn.BatchNorm1d(3)


GLOBAL_NET = make_net()


def plain(net, x, y):
    return net(x).square().sum() * y.sum()


def named_in_a_function(x, y):
    return plain(GLOBAL_NET, x, y)


def named_in_a_generator(x, y):
    return sum(plain(GLOBAL_NET, k * x, y) for k in range(1, 3))


def named_in_a_function_it_calls(x, y):
    return named_in_a_function(x, y)


class Task:
    """A plain object with a module in it."""

    def __init__(self, net):
        self.net = net

    def loss(self, x, y):
        return plain(self.net, x, y)


class CallableTask(Task):
    __call__ = Task.loss


class NetWithLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        return plain(self.net, x, y)


def decorated(loss):
    @functools.wraps(loss)
    def wrapped(*args):
        return loss(*args)

    return wrapped


def keyword_default(net):
    def loss(x, y, *, net=net):
        return plain(net, x, y)

    return loss


def closure_over_an_object(net):
    task = Task(net)
    return lambda x, y: plain(task.net, x, y)


def closure_over_a_dict(net):
    nets = {"net": [net]}
    return lambda x, y: plain(nets["net"][0], x, y)


def closure_over_much(net):
    held = {"deep": [{"deeper": ({"deepest": Task([Task(net)])},)}], "numbers": [0.5] * 10**6}
    return lambda x, y: plain(held["deep"][0]["deeper"][0]["deepest"].net[0].net, x, y)


WAYS = {
    "closure": lambda net: lambda x, y: plain(net, x, y),
    "closure over an object": closure_over_an_object,
    "closure over a dict": closure_over_a_dict,
    "closure over much": closure_over_much,
    "decorated": lambda net: decorated(lambda x, y: plain(net, x, y)),
    "partial": lambda net: functools.partial(plain, net),
    "keyword default": keyword_default,
    "method": lambda net: Task(net).loss,
    "callable object": CallableTask,
    "module": NetWithLoss,
    "method of a module": lambda net: NetWithLoss(net).forward,
}
GLOBAL_LOSSES = [named_in_a_function, named_in_a_generator, named_in_a_function_it_calls]


def state_after_a_problem(net, loss):
    """The problem tries both losses, which moves the statistics of `net` if nobody looks."""
    x0 = torch.arange(12.0).view(4, 3)
    bilevel.Problem(outer=loss, inner=loss, x0=x0, y0=torch.ones(2))
    return [buffer.tolist() for buffer in net.buffers()]


FRESH = [buffer.tolist() for buffer in make_net().buffers()]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_module_is_found_however_the_loss_holds_it(way):
    net = make_net()
    loss = way(net)
    assert state_after_a_problem(net, loss) == FRESH
    loss(torch.arange(12.0).view(4, 3), torch.ones(2))
    assert [buffer.tolist() for buffer in net.buffers()] != FRESH, "the loss must use the module"


@pytest.mark.parametrize("loss", GLOBAL_LOSSES, ids=lambda loss: loss.__name__)
def test_module_is_found_when_a_loss_names_it(loss):
    assert state_after_a_problem(GLOBAL_NET, loss) == FRESH


def test_each_module_is_found_once_and_none_where_there_is_none():
    net = make_net()
    loss = WAYS["closure"](net)
    assert modules_of(loss, WAYS["method"](net), loss) == [net]
    assert modules_of(lambda x, y: y.sum()) == []


class Reassigning(nn.Module):
    """Buffers that a forward pass replaces instead of writing into, and one that it fills."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("first", None)

    def forward(self, rows):
        self.mean = 0.9 * self.mean + 0.1 * rows.mean(0)
        self.first = rows[0].clone() if self.first is None else self.first
        return rows - self.mean


def test_buffer_that_a_module_replaces_is_put_back():
    net = Reassigning()
    mean = net.mean
    state_after_a_problem(net, lambda x, y: plain(net, x, y))
    assert net.mean is mean
    assert torch.equal(mean, torch.zeros(3))
    assert net.first is None


def test_module_shared_by_both_losses_is_put_back_once_and_fully():
    net = nn.Sequential(make_net(), make_net())
    x0 = torch.arange(12.0).view(4, 3)
    bilevel.Problem(
        outer=lambda x, y: plain(net, x, y),
        inner=lambda x, y: plain(net[1], x, y),
        x0=x0,
        y0=torch.ones(2),
    )
    assert [buffer.tolist() for buffer in net.buffers()] == FRESH * 2
