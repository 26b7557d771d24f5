"""What belongs to the user is left as it was: module buffers and the global random state."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from bilevel.problem.chance import Held, lent
from bilevel.problem.identity.held import parts_of
from bilevel.problem.networks import Networks

_MOST = 2000  # values to visit: losses may lead to everything in a program
_GLOBAL = torch.default_generator, random.seed.__self__  # type: ignore[attr-defined]
_LEAVES = Tensor | np.ndarray | str | bytes | int | float | complex | ModuleType | None


@contextmanager
def untouched(modules: list[nn.Module], device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's global random state; restore it and the modules' buffers at the end.

    A loss may draw random numbers (dropout) or update running statistics (batch
    normalisation): the first become reproducible, the second leave no trace.
    """
    saved = [
        (part._buffers, name, buffer, None if buffer is None else buffer.clone())
        for module in modules
        for part in module.modules()
        for name, buffer in part._buffers.items()
    ]
    # torch.manual_seed would seed every accelerator too, and takes a millisecond.
    with lent(torch.default_generator, seed) if device.type == "cpu" else _forked(device, seed):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffers, name, buffer, value in saved:
                    buffers[name] = buffer  # the module may have replaced it
                    if buffer is not None and value is not None:
                        buffer.copy_(value)


@contextmanager
def _forked(device: torch.device, seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device]):
        torch.manual_seed(seed)
        yield


def modules_of(*losses: Callable[..., Any]) -> list[nn.Module]:
    """The modules that the losses are, close over or name, also inside objects and containers."""
    return [v for v in _reached(losses, inside_modules=False) if isinstance(v, nn.Module)]


def generators_of(*holders: Any) -> list[Held]:
    """The random generators that losses, modules or Datasets hold, besides the global ones."""
    found = [v for v in _reached(holders, inside_modules=True) if isinstance(v, Held)]
    return [generator for generator in found if not any(generator is g for g in _GLOBAL)]


def datasets_of(*holders: Any) -> list[Dataset[Any]]:
    """The Datasets that samplers hold."""
    return [v for v in _reached(holders, inside_modules=True) if isinstance(v, Dataset)]


def _reached(values: Sequence[Any], inside_modules: bool) -> list[Any]:
    """What the values hold, themselves included."""
    seen, ahead = dict[int, Any](), deque[Any](values)  # the nearest first
    while ahead and len(seen) < _MOST:
        value = ahead.popleft()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen[id(value)] = value
        if not isinstance(value, Held if inside_modules else Held | nn.Module | Networks):
            with suppress(Exception):  # classes may do anything on attribute access
                ahead.extend(part for _, part in islice(parts_of(value), _MOST))
    return [*seen.values()]
