"""What `AnchoredAID` keeps of its looks, in the plain data of a State."""

from __future__ import annotations

from dataclasses import replace

import torch

from bilevel.algorithms.contract import State
from bilevel.algorithms.tried_steps import Evaluation
from bilevel.oracles.corrected import Look
from bilevel.oracles.points import Oracle


def lower(oracle: Oracle, state: State) -> State:
    """Where Φ is lower on all rows, here or at the start: looks at some rows may have erred."""
    p = state.points
    if "start x" not in p:
        return state
    rest = {name: point for name, point in p.items() if not name.startswith("start ")}
    if not torch.equal(p["x"], p["start x"]):
        here = Look.at(oracle, p["x"], p["y"], p["v"])
        start = Look.at(oracle, *(p[f"start {name}"] for name in "xyv"))
        if not here.L <= start.L:
            none = {name: kept[:0] for name, kept in state.memory["x"].items()}
            state = replace(state, memory={**state.memory, "x": none})
            rest.update(x=start.x, y=start.y, v=start.v)
    return replace(state, points=rest)


def with_look(state: State, look: Look) -> State:
    """The same, with a look at where it stands."""
    points = {"look y": look.y, "look v": look.v}
    gradients = {"look h": look.h, "look r": look.r, "look g": look.g}
    after = replace(state, points={**state.points, **points, **gradients})
    return but(after, **{"look f": look.f})


def kept(state: State) -> Look:
    """The look that a state has."""
    p = state.points
    f = state.measured["look f"]
    return Look(p["x"], p["look y"], p["look v"], f, p["look h"], p["look r"], p["look g"])


def without_look(state: State, **measured: float) -> State:
    """The same, where a look is due, with these numbers."""
    points = {name: point for name, point in state.points.items() if not name.startswith("look ")}
    return but(replace(state, points=points), **measured)


def with_solution(state: State, found: Evaluation) -> State:
    """y and v of the sample's solution, and what was learned of its H."""
    points = {**state.points, "y": found.y, "v": found.v}
    return replace(state, points=points, memory={**state.memory, "v": dict(found.memory)})


def but(state: State, **measured: float) -> State:
    """The same with these numbers."""
    return replace(state, measured={**state.measured, **measured})
