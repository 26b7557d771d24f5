"""A walk of one outer step through the house: a diagram drawn from the trace of a real step."""

from __future__ import annotations

import html
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

import bilevel

PAGE = Path(__file__).parents[1] / "project" / "architecture.md"
_HERE = str(Path(bilevel.__file__).parent)
_ROOMS = ("runs", "algorithms", "hypergradients", "solvers", "oracles", "problem")
_WIDE, _HIGH, _TOP = 150, 26, 60  # of a lane, of a line, of the heads


class Call(NamedTuple):
    """One room asks another."""

    asking: str
    asked: str
    name: str


def pages() -> dict[str, str]:
    """The page of the architecture, with the diagram in its place."""
    text = PAGE.read_text("utf-8")
    assert "<!-- walk -->" in text
    return {"project/architecture.md": text.replace("<!-- walk -->", drawn(traced()))}


def traced() -> dict[Call, int]:
    """The calls from room to room in one outer step of AID-BiO, in order, with how often."""
    problem = bilevel.Problem(
        outer=lambda x, y, batch: ((batch.data[0] @ y - batch.data[1]) ** 2).mean(),
        inner=lambda x, y, batch: (
            ((batch.data[0] @ y - batch.data[1]) ** 2).mean() + (x.exp() * y**2).sum()
        ),
        x0=torch.zeros(3),
        y0=torch.zeros(3),
        inner_data=(torch.eye(3), torch.ones(3)),
        outer_data=(torch.eye(3), torch.ones(3)),
    )
    method = bilevel.algorithms.AIDBiO(inner_steps=3, inner_lr=0.1, cg_steps=2, outer_lr=0.1)
    bilevel.minimize(problem, method, steps=1)  # so that what is made once is made
    found: dict[Call, int] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (asked := _room(frame)):
            return
        name = frame.f_code.co_qualname
        asking = next((room for above in _above(frame) if (room := _room(above))), "")
        if asking not in ("", asked) and "<" not in name and "__" not in name:
            call = Call(asking, asked, name)
            found[call] = found.get(call, 0) + 1

    sys.setprofile(watch)
    try:
        bilevel.minimize(problem, method, steps=1)
    finally:
        sys.setprofile(None)
    calls = list(found)
    start = next(i for i, call in enumerate(calls) if call.name == "DoubleLoop.step")
    # From the step on, and upwards or downwards between the rooms of a step only.
    return {call: found[call] for call in calls[start:] if "_" not in call.name.split(".")[-1][:1]}


def _above(frame: FrameType) -> list[FrameType]:
    found, one = [], frame.f_back
    while one is not None:
        found.append(one)
        one = one.f_back
    return found


def _room(frame: FrameType) -> str:
    """The room of the library that a frame's code is in; "" outside of the six."""
    file = frame.f_code.co_filename
    if not file.startswith(_HERE):
        return ""
    room = Path(file).relative_to(_HERE).parts[0]
    return room if room in _ROOMS else ""


def drawn(calls: dict[Call, int]) -> str:
    """A lane for each room, time downwards, an arrow for each kind of call."""
    height = _TOP + _HIGH * (len(calls) + 1)
    width = _WIDE * len(_ROOMS)
    parts = [
        f'<div class="scroll"><svg class="walk" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="Calls between rooms in one outer step">'
    ]
    for i, room in enumerate(_ROOMS):
        x = _WIDE * i + _WIDE // 2
        parts.append(f'<text x="{x}" y="24" text-anchor="middle" class="room">{room}/</text>')
        parts.append(f'<line x1="{x}" x2="{x}" y1="34" y2="{height}" class="lane"/>')
    for i, (call, count) in enumerate(calls.items()):
        y = _TOP + _HIGH * i
        x1, x2 = (_WIDE * _ROOMS.index(room) + _WIDE // 2 for room in (call.asking, call.asked))
        tip = 6 if x2 > x1 else -6
        often = f" ×{count}" if count > 1 else ""
        parts.append(f'<path d="M{x1} {y}H{x2 - tip}" class="call"/>')
        parts.append(f'<path d="M{x2} {y}l{-tip} -4v8z" class="tip"/>')
        label = html.escape(call.name.rsplit(".", 2)[-1] if "locals" in call.name else call.name)
        parts.append(
            f'<text x="{(x1 + x2) // 2}" y="{y - 5}" text-anchor="middle">{label}{often}</text>'
        )
    return "\n".join([*parts, "</svg></div>"])
