"""The generators that the user's code draws from, seeded while it runs.

They are the global ones, and those that the code holds, such as a `torch.Generator` in a closure or
`numpy.random.default_rng(0)` in a Dataset.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

_ROUNDS = 5  # that must agree: two threads rarely meet as often


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


Held = torch.Generator | np.random.Generator | np.random.RandomState | random.Random


def _own(held: Any) -> _Generator:
    """One that the user's code holds."""
    if isinstance(held, torch.Generator):
        return _Generator(held.get_state, held.manual_seed, held.set_state)
    if isinstance(held, random.Random):
        return _Generator(held.getstate, held.seed, held.setstate)
    if isinstance(held, np.random.RandomState):
        return _Generator(held.get_state, held.seed, held.set_state)
    bits = held.bit_generator

    def put(state: Any) -> None:
        bits.state = state

    return _Generator(lambda: bits.state, lambda seed: put(type(bits)(seed).state), put)


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
    """The generators that the losses draw from; most draw from none.

    Args:
        device: of the variables.
        held: generators that the user's code holds, besides the global ones.
        names: those that are drawn from, if they are known; those held are numbered.
    """

    def __init__(
        self, device: torch.device, held: Sequence[Held] = (), names: Collection[str] = ()
    ) -> None:
        own = {f"a generator of their own ({i})": _own(g) for i, g in enumerate(held, 1)}
        self._all, self.names = {**_generators(device), **own}, set(names)

    def every(self) -> Chance:
        """All generators, whether they are drawn from or not."""
        other = copy.copy(self)
        other.names = set(self._all)
        return other

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note which generators advance inside the block; they are seeded from now on."""
        before = {name: _words(generator.get()) for name, generator in self._all.items()}
        yield
        self.names |= {n for n, g in self._all.items() if _words(g.get()) != before[n]}

    def rounds(self) -> Iterator[None]:
        """A round to watch, and further ones while generators advance in each of them.

        Another thread may have moved the global ones meanwhile: what advances in all rounds counts.
        """
        known, found = set(self.names), set(self._all)
        for _ in range(_ROUNDS):
            self.names = set(known)
            yield
            found &= self.names - known
            if not found:
                break
        self.names = known | found

    @contextmanager
    def seeded(self, number: int) -> Iterator[None]:
        """Seed the generators with this number inside the block, and restore them at its end."""
        mine = self._mine()
        states = [generator.get() for generator in mine]
        try:
            self.seed(number)
            yield
        finally:
            for generator, state in zip(mine, states, strict=True):
                generator.put(state)

    def seed(self, number: int) -> None:
        """Seed again, inside such a block: to restore numpy's takes longer than a row may."""
        for generator in self._mine():
            generator.seed(number)

    def _mine(self) -> list[_Generator]:
        return [self._all[name] for name in sorted(self.names)]


def _words(state: Any) -> Any:
    """A generator's state as something that can be compared."""
    if isinstance(state, Tensor):
        return state.numpy().tobytes()
    if isinstance(state, np.ndarray):
        return state.tobytes()
    if isinstance(state, dict):
        return {name: _words(part) for name, part in state.items()}
    # Python's own has 625 integers, which are looked at as they are.
    return tuple(map(_words, state)) if isinstance(state, tuple) and len(state) < 10 else state
