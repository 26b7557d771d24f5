"""Betty: two `ImplicitProblem`s and its engine, with conjugate gradients."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from betty.configs import Config, EngineConfig
from betty.engine import Engine
from betty.problems import ImplicitProblem

from race.case import Array, Case
from race.contestants.torch_autograd import Losses


class Vector(torch.nn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.zeros(shape))

    def forward(self) -> torch.Tensor:
        return self.value


class Outer(ImplicitProblem):  # type: ignore[misc]
    losses: Losses

    def training_step(self, batch: Any) -> Any:
        return self.losses.outer(self.inner())


class Inner(ImplicitProblem):  # type: ignore[misc]
    losses: Losses

    def training_step(self, batch: Any) -> Any:
        return self.losses.inner(self.outer(), self.module())


def implicit(case: Case) -> Callable[[], Array]:
    logging.disable(logging.INFO)
    losses, D = Losses(case), case.count("D")

    def run() -> Array:
        outer_module, inner_module = Vector(case.x_size), Vector(*case.shape)
        outer = _problem(Outer, "outer", outer_module, 1.0, Config(retain_graph=True))
        config = Config(type="cg", cg_iterations=case.count("N"), cg_alpha=1.0, unroll_steps=D)
        inner = _problem(Inner, "inner", inner_module, case.settings["alpha"], config)
        outer.losses = inner.losses = losses
        links = {"u2l": {outer: [inner]}, "l2u": {inner: [outer]}}
        engine = Engine(
            problems=[outer, inner], config=EngineConfig(train_iters=D), dependencies=links
        )
        engine.run()
        return -outer_module.value.detach().numpy()  # one step of size 1 from zero

    return run


def _problem(kind: Any, name: str, module: torch.nn.Module, lr: float, config: Config) -> Any:
    return kind(
        name=name,
        config=config,
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=lr),
        train_data_loader=[(0,)],
    )
