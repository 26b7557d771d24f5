"""What is kept of a run, as plain data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bilevel.algorithms.contract import State
from bilevel.oracles.prices import Counts
from bilevel.runs.history import HistoryRecord, Past
from bilevel.runs.status import Status

FORMAT = "bilevel run 3"
_FORMAT_1 = "bilevel run 1"
READABLE = (FORMAT, "bilevel run 2", _FORMAT_1)


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Args:
        status: in a word.
        tol: the tolerance, if that decided.
        point: the x and y that were verified, if they are not the state's.
        note: what the verification found, or how the run diverged.
        for_good: False if a limit ended a doubtful run: with a wider one it continues.
        unseen: whether there was no time to verify: a longer run begins with that.
        noisy: then, whether the estimate is based on batches.
    """

    status: Status
    tol: float | None = None
    point: tuple[Tensor, Tensor] | None = None
    note: str = ""
    for_good: bool = True
    unseen: bool = False
    noisy: bool = False

    def stands(self, tol: float | None, limit: Status | None) -> bool:
        """Whether this is still the ending if the run is called again.

        Args:
            tol: the current tolerance.
            limit: the status of a current limit that ends the run in any case.
        """
        # No limit ended it, so no wider limit can continue it.
        if self.status in (Status.STOPPED, Status.DIVERGED):
            return True
        if self.status is Status.TIME_LIMIT:
            return limit is self.status
        if tol is None or self.tol is None:
            return False
        if self.status is Status.CONVERGED:
            # Converged to a tighter tolerance is converged to this one.
            return self.tol <= tol
        return (
            self.status is Status.DOUBTFUL
            and self.tol == tol
            and (self.for_good or limit is not None)
        )


@dataclass(frozen=True)
class Best:
    """The evaluated point with the lowest outer value."""

    value: float
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Saved:
    """The state of a run after all that belongs to its last step.

    Args:
        past: the state and what led to it.
        memories: of the callbacks that have one, in their order.
        ending: how the run ended; None before its end.
        best: the best point so far, for a run that diverges.
    """

    past: Past
    memories: tuple[dict[str, Any], ...] = ()
    ending: Ending | None = None
    best: Best | None = None

    def plain(self) -> dict[str, Any]:
        """Dicts, numbers, text and tensors, the same to the bit.

        Example:
            >>> import torch
            >>> record = HistoryRecord(1, 0.5, None, 2.0, {}, Counts(hv=3), {"inner_steps": 4})
            >>> state = State(1, {"x": torch.ones(2), "y": torch.ones(2)})
            >>> saved = Saved(Past(state, 0.5, history=[record]), ending=Ending(Status.STOPPED))
            >>> Saved.of(saved.plain()).past.history == [record]
            True
        """
        past = self.past
        return {
            "format": FORMAT,
            "past": {
                "state": past.state.plain(),
                "seconds": past.seconds,
                "counts": dict(past.counts),
                # As one text: torch takes many seconds to load a hundred thousand small dicts.
                "history": "\n".join(lines_of(past.history)),
            },
            "memories": list(self.memories),
            "ending": None if self.ending is None else _plain(self.ending),
            "best": None if self.best is None else dict(vars(self.best)),
        }

    @staticmethod
    def of(plain: dict[str, Any]) -> Saved:
        """From plain data, of this version or an earlier one."""
        if plain["format"] == _FORMAT_1:
            plain = _from_format_1(plain)
        past, ending, best = plain["past"], plain["ending"], plain["best"]
        state = State(**past["state"])
        if not isinstance(state.step, int) or not all(
            isinstance(point, Tensor) for point in (state.x, state.y, *state.points.values())
        ):
            raise TypeError("its state has no step and points")
        return Saved(
            Past(
                state, float(past["seconds"]), Counts(**past["counts"]), _records(past["history"])
            ),
            tuple(dict(memory) for memory in plain["memories"]),
            None if ending is None else Ending(**{**ending, "status": Status(ending["status"])}),
            None if best is None else Best(**best),
        )


def _plain(ending: Ending) -> dict[str, Any]:
    return {**vars(ending), "status": str(ending.status)}


def _from_format_1(plain: dict[str, Any]) -> dict[str, Any]:
    """There, points had separate fields, only x had a memory, and an ending was just a status."""
    old, status = plain["past"]["state"], plain["status"]
    points = {name: old[name] for name in ("x", "y", "y0", "v") if old.get(name) is not None}
    state = {
        "step": old["step"],
        "points": points,
        "memory": {"x": old["memory"]},
        "measured": old["measured"],
    }
    # "Converged" was not verified then: such a run goes on.
    kept = status if status in ("stopped", "diverged") else None
    return {
        "past": {**plain["past"], "state": state},
        "memories": plain["memories"],
        "ending": None if kept is None else {"status": kept},
        "best": None,
    }


def lines_of(history: Sequence[HistoryRecord]) -> list[str]:
    """One line per record."""
    return [json.dumps({**record, "counts": [*dict(record.counts).values()]}) for record in history]


def records_of(lines: Sequence[str]) -> list[HistoryRecord]:
    rows = map(json.loads, lines)
    return [HistoryRecord(**{**row, "counts": Counts(*row["counts"])}) for row in rows]


def _records(text: str) -> list[HistoryRecord]:
    # Formats 1 and 2 had one JSON list.
    lines = [json.dumps(row) for row in json.loads(text)] if text[:1] == "[" else text.splitlines()
    return records_of(lines)
