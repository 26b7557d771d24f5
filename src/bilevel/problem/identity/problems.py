"""A description of a problem, to tell it from others."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import torch

from bilevel.problem.identity.digests import digest_of_tensor
from bilevel.problem.identity.words import NOT_COMPARED, Identity, words_of

if TYPE_CHECKING:
    from bilevel.problem.problem import Problem

_FEW = 4  # rows, to try a loss on
_ONE = Lock()


def identity_of_problem(problem: Problem) -> Identity:
    """Its sizes, start, losses and data; for a sharded problem, those of the whole problem.

    Whatever the losses change themselves (a counter, a list that they append to) is not compared:
    a second run in the same process would find it changed.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> found = identity_of_problem(problem)
        >>> found["dtype"], found["size of x"], found["inner's constants"]
        ('torch.float32', '1', '2')
    """
    if problem.whole_identity is not None:
        return problem.whole_identity
    found = {
        "dtype": str(problem.dtype),
        "device": problem.device.type,
        "size of x": str(len(problem.x0)),
        "size of y": str(len(problem.y0)),
        "x0": digest_of_tensor(problem.x0),
        "y0": digest_of_tensor(problem.y0),
        "tasks": str(problem.tasks),
    }
    losses = {"model": problem.model, "outer": problem.outer, "inner": problem.inner}
    if problem.start_of_y is not None:
        losses["y0 as a function"] = problem.start_of_y
    # The user's code may make the rows, with random numbers. One thread at a time: while a module
    # is called, other tensors stand in for its parameters.
    with _ONE, problem.untouched(seed=0), problem.chance.every().seeded(0):
        found |= words_of({"outer_data": problem.outer_data, "inner_data": problem.inner_data})
        before = words_of(losses)
        _call(problem)
        after = words_of(losses)
    changing = (name for name in before | after if before.get(name) != after.get(name))
    return found | before | dict.fromkeys(changing, f"{NOT_COMPARED}the losses change it")


def _call(problem: Problem) -> None:
    for name, data in (("outer", problem.outer_data), ("inner", problem.inner_data)):
        rows = None if data is None or data.is_stream else torch.arange(min(len(data), _FEW))
        problem.value(name, problem.x0.clone(), problem.y0.clone(), problem.draw(name, rows))
