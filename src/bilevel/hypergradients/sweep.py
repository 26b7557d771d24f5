"""Back over inner steps of any update, in segments whose graphs fit into memory.

In the forward pass the graphs of the last segment are kept, and of each earlier one only its
start. In the backward pass an earlier segment is run again from there, on the same rows, with the
same random draws and its original buffers, keeping its graphs. One graph at a time is the plain
sweep of Proposition 2: D vectors, not D graphs; all at once is as fast as unrolling by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from bilevel.errors import quoted
from bilevel.oracles.points import Linear, Oracle
from bilevel.solvers.inner.steps import Move
from bilevel.solvers.updates.base import Back, Memory

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
# A graph holds what autograd says it saves, plus a quarter; y, its gradient and the result of a
# product are kept with it.
_MORE, _VECTORS = 1.25, 3


@dataclass(frozen=True, eq=False)
class Taken:
    """A step as it was taken.

    Args:
        move: the step as planned.
        y, memory: before it.
        gradient: the one it followed; None if the backward pass does not need it.
    """

    t: int
    move: Move
    y: Tensor
    memory: Memory
    gradient: Tensor | None

    def apply(self, gradient: Tensor) -> tuple[Tensor, Memory]:
        """The point and the memory after it."""
        return self.move.update.apply(self.y, gradient, self.memory, self.move.look)

    def transpose(self, r: Tensor, of_memory: dict[str, Tensor]) -> Back:
        """Take covectors after the step to those before it."""
        gradient = r if self.gradient is None else self.gradient  # a linear update never looks
        update, look = self.move.update, self.move.look
        if not update.is_linear:
            look = replace(look, point=self.y)
        return update.transpose(r, of_memory, gradient, self.memory, look)


class Walk:
    """Inner steps, forward and back.

    Args:
        oracle: gives their gradients.
        x: held fixed.
        moves: the steps.
        first: steps before this one are taken, but not differentiated.
        hold: how many graphs are held at a time: a number, or as many as fit, such as "256MB".
    """

    def __init__(
        self, oracle: Oracle, x: Tensor, moves: Sequence[Move], first: int, hold: int | str
    ) -> None:
        self._oracle, self._x, self._moves, self._first = oracle, x, moves, first
        self._hold, self._length = hold, 1
        self._again = dict[int, Callable[[Tensor], Linear]]()
        self._starts, self._tape = list[Taken](), list[tuple[Taken, Linear]]()

    def forward(self, y: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Where the steps lead."""
        D = len(self._moves)
        # With closed forms a graph saves nothing; otherwise one must be built to know how many fit.
        kept_from = D if self._oracle.linear_bytes is None else self._first
        for t, move in enumerate(self._moves):
            taken = Taken(t, move, y, memory, None)
            kept = t >= kept_from
            at = self._oracle.linearize if kept else self._oracle.inner
            point = at(self._x, y, move.rows)
            gradient = point.gradient()
            if kept and t == self._first:
                self._length = self._fit(y, memory)
                kept_from = t + (D - 1 - t) // self._length * self._length
            if t >= kept_from:
                assert isinstance(point, Linear)
                self._tape.append((self._with(taken, gradient), point))
            elif t >= self._first:
                self._again[t] = self._oracle.again(point, self._x, move.rows)
                if (t - self._first) % self._length == 0:
                    self._starts.append(self._with(taken, gradient))
            y, memory = taken.apply(gradient)
        return y, memory

    def back(self) -> Iterator[tuple[Taken, Linear]]:
        """The steps with their linearisations, last first."""
        while self._tape or self._starts:
            if not self._tape:
                self._run_again(self._starts.pop())
            yield self._tape.pop()

    def _run_again(self, start: Taken) -> None:
        taken, end = start, start.t + self._length
        for t in range(start.t, end):
            point = self._again.pop(t)(taken.y)
            last = t == end - 1
            gradient = taken.gradient
            if gradient is None and not (last and taken.move.update.is_linear):
                gradient = point.gradient()
            self._tape.append((taken if gradient is None else self._with(taken, gradient), point))
            if not last:
                assert gradient is not None
                y, memory = taken.apply(gradient)
                taken = Taken(t + 1, self._moves[t + 1], y, memory, None)

    def _with(self, taken: Taken, gradient: Tensor) -> Taken:
        if taken.move.update.is_linear:
            return taken
        return Taken(taken.t, taken.move, taken.y, taken.memory, gradient)

    def _fit(self, y: Tensor, memory: Memory) -> int:
        """How many graphs to hold at a time."""
        D = len(self._moves) - self._first
        if isinstance(self._hold, int):
            return min(self._hold, D)
        vectors = 1 + sum(isinstance(part, Tensor) for part in memory.values())
        graph = int(_MORE * (self._oracle.linear_bytes or 0)) + _VECTORS * y.nbytes
        return segment_for(in_bytes(self._hold), D, graph, vectors * y.nbytes)


def segment_for(budget: int, D: int, graph: int, state: int) -> int:
    """The longest segment whose graphs, with the states that start the others, fit the budget.

    Args:
        budget, graph, state: in bytes: what is available, and what a graph and a start take.
        D: the number of steps.

    Example:
        >>> segment_for(budget=100, D=10, graph=20, state=5), segment_for(10**6, 10, 20, 5)
        (4, 10)
    """

    def need(k: int) -> int:
        return k * graph + (D - 1) // k * state

    fitting = [k for k in range(1, D + 1) if need(k) <= budget]
    # If nothing fits, the one that needs the least.
    return max(fitting) if fitting else min(range(1, D + 1), key=need)


def in_bytes(text: str) -> int:
    """The number of bytes in a text such as "256MB" or "1.5 GB".

    Example:
        >>> in_bytes("256MB")
        256000000
    """
    found = re.fullmatch(r"([0-9.]+) *([kmg]?)b", text.strip().lower())
    try:
        return int(float(found[1]) * _UNITS[found[2]]) if found else int(text)
    except ValueError:
        raise ValueError(
            f"memory must be a text such as '256MB', or a number of steps, got {quoted(text)}"
        ) from None
