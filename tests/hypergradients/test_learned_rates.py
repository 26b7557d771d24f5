"""Learning rates and decays as part of x, against unrolled autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bilevel

_F64 = torch.float64
ROWS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=_F64)
LABELS = torch.tensor([0, 1, 0, 1, 1, 0, 1])
X0 = {"rate": torch.full((4,), -2.0, dtype=_F64), "decay": torch.full((2,), -3.0, dtype=_F64)}
D = 4


def net() -> nn.Module:
    made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(torch.sin(torch.arange(parameter.numel()) + number).view_as(parameter))
    return made


def rate(x: Any) -> dict[str, Tensor]:
    """One for each tensor, by the module's names."""
    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    return {name: x["rate"][i].exp() for i, name in enumerate(names)}


def decay(x: Any) -> dict[str, Tensor]:
    """One for each layer; for the first layer's weight one for each row, which expands."""
    rows = torch.stack([x["decay"][0].exp()] * 4)[:, None]
    first, last = x["decay"][0].exp(), x["decay"][1].exp()
    return {"0.weight": rows, "0.bias": first, "2.weight": last, "2.bias": last}


def inner(x: Any, y: Any) -> Tensor:
    """x weighs the rows, too: both ways add."""
    losses = nn.functional.cross_entropy(y(ROWS), LABELS, reduction="none")
    return (losses * (x["rate"].sum() * torch.arange(7)).sin().exp()).mean()


def outer(x: Any, y: Any) -> Tensor:
    return nn.functional.cross_entropy(y(ROWS[:4]), LABELS[:4]) + 0.01 * x["rate"].square().sum()


def along(kind: str, t: int, slope: Tensor, memory: dict[str, Tensor]) -> Tensor:
    """What is taken off, but for the rate."""
    if kind == "descent":
        return slope
    if kind == "momentum":
        memory["m"] = 0.9 * memory.get("m", 0) + slope
        return memory["m"]
    m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * slope
    v = memory["v"] = 0.999 * memory.get("v", 0) + 0.001 * slope.square()
    size = (v / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8
    return m / (1 - 0.9 ** (t + 1)) / size


def unrolled(kind: str, has_rate: bool, has_decay: bool) -> Tensor:
    x = {n: t.clone().requires_grad_() for n, t in X0.items()}
    module = net()
    y = {n: p.detach().clone().requires_grad_() for n, p in module.named_parameters()}
    memories: dict[str, dict[str, Tensor]] = {n: {} for n in y}
    called = lambda rows: functional_call(module, y, (rows,))  # noqa: E731
    for t in range(D):
        slopes = torch.autograd.grad(inner(x, called), list(y.values()), create_graph=True)
        steps = {
            n: -along(kind, t, s, memories[n]) - (decay(x)[n] * y[n] if has_decay else 0)
            for n, s in zip(y, slopes, strict=True)
        }
        y = {n: y[n] + (rate(x)[n] if has_rate else 1) * steps[n] for n in y}
    found = torch.autograd.grad(outer(x, called), list(x.values()), materialize_grads=True)
    return torch.cat(found)


UPDATES = {
    "descent": bilevel.updates.Descent(1.0),
    "momentum": bilevel.updates.Momentum(1.0),
    "adam": bilevel.updates.Adam(1.0),
}


def learned(kind: str, **functions: Any) -> bilevel.inner.Steps:
    return bilevel.inner.Steps(
        bilevel.updates.Learned(UPDATES[kind], like=(X0, net()), **functions), D
    )


@pytest.mark.parametrize("memory", [1, 2, "256MB"])
@pytest.mark.parametrize("names", [("rate",), ("decay",), ("rate", "decay")], ids="+".join)
@pytest.mark.parametrize("kind", UPDATES)
def test_itd_differentiates_rates_and_decays(kind: str, names: Any, memory: Any) -> None:
    functions = {name: {"rate": rate, "decay": decay}[name] for name in names}
    problem = bilevel.Problem(outer, inner, X0, net())
    found = bilevel.hypergradient(
        problem, X0, net(), bilevel.ITD(memory=memory), learned(kind, **functions)
    )
    exact = unrolled(kind, "rate" in names, "decay" in names)
    value = torch.cat([found.value["rate"], found.value["decay"]])
    torch.testing.assert_close(value, exact, rtol=1e-8, atol=1e-9 * float(exact.abs().max()))


def test_adamw_with_its_own_decay_serves_as_the_update() -> None:
    """A decay in U moves with p: the covector of p goes through it."""
    x = torch.zeros(1, dtype=_F64)
    update = bilevel.updates.Learned(
        bilevel.updates.AdamW(0.1, decay=0.5), like=(x, x), rate=lambda x: x.exp()
    )
    problem = bilevel.Problem(
        lambda x, y: y.square().sum(), lambda x, y: (y - 3).pow(4).sum() + 0 * x.sum(), x, x + 1
    )
    steps = bilevel.inner.Steps(update, 3)
    slope = bilevel.hypergradient(problem, x, x + 1, bilevel.ITD(), steps).value

    def phi(x: Tensor) -> Tensor:
        return bilevel.solve_inner(problem, x, steps, x * 0 + 1).y.square().sum()

    torch.testing.assert_close(slope[0], (phi(x + 1e-5) - phi(x - 1e-5)) / 2e-5, rtol=1e-7, atol=0)


def test_rates_are_learned_by_a_run_and_resumed(tmp_path: Any) -> None:
    problem = bilevel.Problem(outer, inner, X0, net())
    method = bilevel.algorithms.ITDBiO(
        inner=learned("momentum", rate=rate), outer=bilevel.updates.Adam(0.1), warm_start=False
    )
    whole = bilevel.minimize(problem, method, steps=10)
    assert whole.history[-1].outer_value < whole.history[0].outer_value
    bilevel.minimize(problem, method, steps=4, checkpoint=tmp_path)
    resumed = bilevel.minimize(problem, method, steps=10, checkpoint=tmp_path)
    assert torch.equal(resumed.state.x, whole.state.x)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: bilevel.updates.Learned(UPDATES["adam"], like=(X0, X0)), "give rate or decay"),
        (lambda: learned("adam", rate=0.1), "must be a function of x"),
        (
            lambda: bilevel.hypergradient(
                bilevel.Problem(outer, inner, X0, net()),
                X0,
                net(),
                bilevel.ITD(),
                learned("adam", rate=lambda x: x["rate"][:3]),
            ),
            "each of the 4 tensors of y",
        ),
        (
            lambda: bilevel.minimize(
                bilevel.Problem(outer, inner, X0, net()),
                bilevel.algorithms.ITDBiO(
                    inner_steps=1, inner_lr=0.1, outer=learned("adam", rate=rate).update
                ),
                steps=1,
            ),
            "moves y",
        ),
    ],
)
def test_what_cannot_be_learned_is_told(act: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        act()
