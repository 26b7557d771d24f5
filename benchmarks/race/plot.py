"""Ratios to the best peer, one row a contest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from race.contest import Contest, Kind
from race.measuring import Score
from race.table import best_peer

STYLES: dict[Kind, dict[str, Any]] = {
    Kind.FLOOR: {"marker": "|", "s": 160, "color": "black", "label": "floor"},
    Kind.PEER: {"marker": "o", "s": 45, "color": "tab:gray", "label": "peers"},
    Kind.OURS: {"marker": "o", "s": 45, "color": "tab:red", "label": "bilevel"},
}


def plot(results: list[tuple[Contest, list[Score]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.6 * len(results)), layout="constrained")
    for kind, style in STYLES.items():
        points = [
            (ratio, row)
            for row, (contest, scores) in enumerate(results)
            for ratio in ratios(contest, scores, kind)
        ]
        axes.scatter([ratio for ratio, _ in points], [row for _, row in points], **style)
    axes.axvline(1, color="tab:gray", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(results)), [contest.name for contest, _ in results])
    axes.invert_yaxis()
    axes.set_xlabel("time against the fastest peer with a right answer")
    axes.legend(loc="best")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def ratios(contest: Contest, scores: list[Score], kind: Kind) -> list[float]:
    """To the best peer; of floors, and of those with a right answer."""
    best = best_peer(contest, scores)
    shown = [
        score.median
        for score in scores
        if score.contestant.kind is kind
        and (score.qualified(contest) or (kind is Kind.FLOOR and score.seconds))
    ]
    return [] if best is None else [seconds / best.median for seconds in shown]
