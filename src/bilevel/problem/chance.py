"""The global generators that the user's code draws from, seeded while it runs."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


def key(*parts: object) -> int:
    """A 32-bit hash of anything with a repr: torch's CPU generator uses no more bits of a seed.

    Example:
        >>> key(0, 3, "inner", 1) == key(0, 3, "inner", 1) != key(0, 3, "inner", 2)
        True
    """
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "little")


@contextmanager
def lent(generator: torch.Generator, number: int) -> Iterator[None]:
    """A generator of the user's, seeded inside the block and put back at its end."""
    state = generator.get_state()
    generator.manual_seed(number)
    try:
        yield
    finally:
        generator.set_state(state)


class _Generator(NamedTuple):
    get: Callable[[], Any]
    seed: Callable[[int], Any]
    put: Callable[[Any], Any]


def _generators(device: torch.device) -> dict[str, _Generator]:
    cpu = torch.default_generator
    found = {
        "torch": _Generator(cpu.get_state, cpu.manual_seed, cpu.set_state),
        "numpy": _Generator(np.random.get_state, np.random.seed, np.random.set_state),
        "random": _Generator(random.getstate, random.seed, random.setstate),
    }
    if device.type == "cuda":
        own = torch.cuda.default_generators[device.index or 0]
        found["cuda"] = _Generator(own.get_state, own.manual_seed, own.set_state)
    return found


class Chance:
    """The global generators that the losses draw from; most draw from none.

    Args:
        device: of the variables.
        names: the generators, if they are known.
    """

    def __init__(self, device: torch.device, names: Collection[str] = ()) -> None:
        self._all, self.names = _generators(device), set(names)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note which generators advance inside the block; they are seeded from now on."""
        before = {name: _words(generator.get()) for name, generator in self._all.items()}
        yield
        self.names |= {n for n, g in self._all.items() if _words(g.get()) != before[n]}

    @contextmanager
    def seeded(self, number: int) -> Iterator[None]:
        """Seed the generators with this number inside the block, and restore them at its end."""
        mine = [self._all[name] for name in sorted(self.names)]
        states = [generator.get() for generator in mine]
        for generator in mine:
            generator.seed(number)
        try:
            yield
        finally:
            for generator, state in zip(mine, states, strict=True):
                generator.put(state)


def _words(state: Any) -> Any:
    """A generator's state as something that can be compared."""
    if isinstance(state, Tensor | np.ndarray):
        return state.tolist()
    return tuple(map(_words, state)) if isinstance(state, tuple) else state
