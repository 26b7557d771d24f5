"""What belongs to the user stays as it was: module buffers and the global random state."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def untouched(modules: list[nn.Module], device: torch.device, seed: int) -> Iterator[None]:
    """Seed torch's global random state; put it and the modules' buffers back at the end.

    A loss may draw random numbers (dropout) or update running statistics (batch
    normalisation): the first become reproducible, the second leave no trace.
    """
    buffers = [buffer for module in modules for buffer in module.buffers()]
    saved = [buffer.clone() for buffer in buffers]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in zip(buffers, saved, strict=True):
                    buffer.copy_(value)


def modules_of(*losses: Callable[..., Any]) -> list[nn.Module]:
    """The modules that the losses are, are bound to, close over or name."""
    found = {id(module): module for loss in losses for module in _reachable(loss, depth=3)}
    return list(found.values())


def _reachable(value: Any, depth: int) -> Iterator[nn.Module]:
    if isinstance(value, nn.Module):
        yield value
    elif depth > 0:
        for part in _parts(value):
            yield from _reachable(part, depth - 1)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if inspect.ismethod(value):
        return [value.__self__, value.__func__]
    if inspect.isfunction(value):
        cells = [c.cell_contents for c in value.__closure__ or () if c != type(c)()]
        named = (value.__globals__.get(name) for name in value.__code__.co_names)
        return [*cells, *named]
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if callable(value) and not inspect.isclass(value):
        return list(getattr(value, "__dict__", {}).values())
    return []
