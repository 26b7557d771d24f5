"""What is said about the findings, in sentences: on the screen and in the report alike."""

from __future__ import annotations

from bilevel.apps.cleaning.counting import ENOUGH
from bilevel.apps.cleaning.engine import Findings
from bilevel.apps.cleaning.numbers import NumberFindings

Found = Findings | NumberFindings

_CHECK = (
    f"Check {ENOUGH} rows: the review offers some that were picked at random. Save your decisions "
    "and give them with --trusted; then there is an answer."
)
BLIND = (
    "The labels alone cannot tell how many of them are wrong: they are too mixed up for that. The "
    f"order of the suspicious rows is still of use. {_CHECK}"
)
UNSEEN = (
    "A wrong label and a right one that is unusual look the same to a model. Without rows that "
    f"somebody has checked, nobody can say how many of the flagged labels are wrong. {_CHECK}"
)
NOTHING = (
    "It may be that no label is wrong. Rows that are hard to tell look like wrong labels: take the "
    "flags as a list of rows to look at, not as errors."
)


def noun(found: Found) -> str:
    """What is judged."""
    return "values" if isinstance(found, NumberFindings) else "labels"


def count(found: Found) -> str:
    """How many labels are wrong, with the interval."""
    low, expected, high = (f"{round(number):,}" for number in found.count)
    rows = f"{int(found.doubtful.sum()):,} {noun(found)}"
    if found.count[0] < 0.5:
        if found.blind or expected in ("0", high):
            high = high if high != "0" else "1"
            return f"Up to about {high} of {rows} may be wrong, and perhaps none is."
        return f"Perhaps about {expected} of {rows} are wrong; it may be up to {high}, or none."
    interval = f"with 90% confidence between {low} and {high}"
    return f"About {expected} of {rows} are wrong; {interval}."


def flags(found: Found) -> str:
    """How many are flagged, and how good the flags should be."""
    flagged = int(found.flagged.sum())
    if not flagged:
        return "None is suspicious enough to be flagged."
    rest = "disagrees" if flagged == 1 else "disagree"
    be = "is" if flagged == 1 else "are"
    told = f"{flagged:,} {rest} with what the other rows suggest, and {be} flagged"
    if found.precision is None:
        return f"{told}."
    low, expected, high = found.precision
    if round(100 * low) == 0:
        if round(100 * high) == 100:
            return f"{told}; too few rows are checked to tell how many of these are wrong."
        most = f"with 90% confidence at most {high:.0%} of the flagged {noun(found)} are wrong"
        return f"{told}; {most}."
    interval = f"with 90% confidence between {low:.0%} and {high:.0%}"
    about = f"about {expected:.0%} of the flagged {noun(found)} should be wrong"
    return f"{told}; {about} ({interval})."


def summary(found: Found, annotators: tuple[str, ...]) -> list[str]:
    """All that is said first, a sentence or two each."""
    said = count(found), flags(found), accuracy(found), people(found, annotators)
    return [sentence for sentence in said if sentence]


def accuracy(found: Found) -> str:
    """How well trusted rows were foretold without their own labels; empty without such rows."""
    if found.checked is None:
        return ""
    rows, right, low, high = found.checked
    interval = f"({low:.0%} to {high:.0%} with 90% confidence)"
    if isinstance(found, NumberFindings):
        return f"Of {rows:,} checked values, {right / rows:.0%} are in their 90% range {interval}."
    return (
        f"Of {rows:,} checked rows, {right / rows:.0%} were given their right label by models that "
        f"had not seen it {interval}."
    )


def people(found: Found, names: tuple[str, ...]) -> str:
    """How good each annotator is thought to be; empty without them."""
    if isinstance(found, NumberFindings) or found.annotators is None:
        return ""
    shares = zip(names, found.annotators, strict=True)
    return "Right in about: " + ", ".join(f"{name} {share:.0%}" for name, share in shares) + "."


def cautions(found: Found) -> list[str]:
    """What the reader must know before acting on it."""
    if found.blind:
        return [BLIND]
    if found.count[0] >= 0.5 or not found.flagged.any():
        return []
    text = UNSEEN if found.checked is None else NOTHING
    return [text.replace("label", noun(found)[:-1])]
