"""What lies behind a run, as plain data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from bilevel.algorithms.state import State
from bilevel.oracles import Counts
from bilevel.runs.result import HistoryRecord, Past


def pack(past: Past) -> dict[str, Any]:
    """Plain data with the same numbers, to the bit; the tensors are the same.

    Example:
        >>> import torch
        >>> record = HistoryRecord(1, 0.5, None, 2.0, {}, Counts(hv=3), {"inner_steps": 4})
        >>> state = State(1, torch.ones(2), torch.ones(2), torch.ones(2))
        >>> past = Past(state, 0.5, history=[record])
        >>> unpack(pack(past)).history == [record]
        True
    """
    state = {field.name: getattr(past.state, field.name) for field in fields(past.state)}
    return {
        "state": state,
        "seconds": past.seconds,
        "counts": dict(past.counts),
        "history": _text(past.history),
    }


def unpack(plain: dict[str, Any]) -> Past:
    """What was packed."""
    state, counts = State(**plain["state"]), Counts(**plain["counts"])
    return Past(state, plain["seconds"], counts, _records(plain["history"]))


def _text(history: Sequence[HistoryRecord]) -> str:
    # One text: to load a hundred thousand small dicts from a torch file takes many seconds.
    return json.dumps([{**record, "counts": [*dict(record.counts).values()]} for record in history])


def _records(text: str) -> list[HistoryRecord]:
    rows = json.loads(text)
    return [HistoryRecord(**{**row, "counts": Counts(*row["counts"])}) for row in rows]
