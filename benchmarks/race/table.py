"""Scores as lines of a table, and the verdict on the target."""

from __future__ import annotations

from race.contest import Contest, Kind
from race.measuring import Score

COLUMNS = (
    "contestant",
    "seconds, median",
    "least to most",
    "against the best peer",
    "preparation, s",
    "memory, MB",
    "error",
    "remark",
)


def best_peer(contest: Contest, scores: list[Score], rival: str = "") -> Score | None:
    """The fastest peer with a right answer, of those whose name has `rival` in it."""
    peers = [
        score
        for score in scores
        if score.contestant.kind is Kind.PEER
        and score.qualified(contest)
        and rival in score.contestant.name
    ]
    return min(peers, key=lambda score: score.median, default=None)


def table(contest: Contest, scores: list[Score]) -> str:
    """Markdown: those with a right answer by time, then the others, then the floor."""
    best = best_peer(contest, scores)
    lines = [f"### {contest.name}: {contest.title}", "", _line(COLUMNS), _line(["---"] * 8)]
    ranked = sorted(scores, key=lambda score: _place(contest, score))
    lines += [_line(_cells(contest, score, best)) for score in ranked]
    return "\n".join([*lines, "", verdict(contest, scores)])


def verdict(contest: Contest, scores: list[Score]) -> str:
    """Ours against the rival that the target names."""
    ours = [s for s in scores if s.contestant.kind is Kind.OURS and s.qualified(contest)]
    rival = best_peer(contest, scores, contest.rival)
    name = contest.rival or "the fastest peer"
    if not ours or rival is None:
        return f"Target: at most {contest.target:g} × {name}. Not measured."
    ratio = ours[0].median / rival.median
    met = "met" if ratio <= contest.target else "missed"
    floors = [s for s in scores if s.contestant.kind is Kind.FLOOR and s.seconds]
    beside = "".join(
        f" It takes {ours[0].median / floor.median:.2f} × the {floor.contestant.name}."
        for floor in floors
    )
    return (
        f"Target: at most {contest.target:g} × {name}. {ours[0].contestant.name} takes "
        f"{_two_digits(ratio)} × {rival.contestant.name}: {met}.{beside}"
    )


def remark(contest: Contest, score: Score) -> str:
    if score.excuse:
        return score.excuse
    if score.contestant.kind is Kind.FLOOR:
        return "not ranked"
    if not score.qualified(contest):
        return f"disqualified: error above {contest.threshold:g}"
    return ""


def _place(contest: Contest, score: Score) -> tuple[int, float]:
    if score.qualified(contest):
        return 0, score.median
    if score.contestant.kind is Kind.FLOOR:
        return 2, score.median
    return 1, 0.0


def _cells(contest: Contest, score: Score, best: Score | None) -> list[str]:
    name, note = score.contestant.name, remark(contest, score)
    if not score.seconds:
        return [name, "", "", "", "", "", "", note]
    return [
        name,
        f"{score.median:.4g}",
        f"{min(score.seconds):.4g} to {max(score.seconds):.4g}",
        f"{score.median / best.median:.2f}" if best else "",
        f"{score.prepared:.1f}",
        "" if score.memory is None else f"{score.memory / 1e6:.0f}",
        "" if score.error is None else f"{score.error:.1e}",
        note,
    ]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _two_digits(ratio: float) -> str:
    """So that 0.055 is not shown as a target of 0.05 that is met."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:#.2g}"
