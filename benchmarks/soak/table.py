"""What was found, as a table in plain text."""

from __future__ import annotations

from soak.cases import Finding

_WIDTHS = (10, 24, 12, 9, 9, 12)


def heading() -> str:
    """The names of the columns of `line`."""
    names = ("algorithm", "problem", "memory, MB", "objects", "handles", "history, B")
    return _columns(names, "verdict")


def line(finding: Finding) -> str:
    """A finding as a line of a table.

    Example:
        >>> from bilevel.runs.result import Status
        >>> from soak.growth import Growth
        >>> grown = Growth(Status.STEP_LIMIT, 500, 2**23, 12.0, 0.0, 800)
        >>> print(heading(), line(Finding("rows", "hoag", grown)), sep="\\n")
        algorithm problem                   memory, MB  objects  handles  history, B  verdict
        hoag      rows                           +8.00    +12.0     +0.0         800  GROWS: memory
    """
    grown = finding.growth
    if grown is None:
        return _columns((finding.algorithm, finding.case, *[""] * 4), finding.verdict)
    memory, objects = f"{grown.resident / 2**20:+.2f}", f"{grown.objects:+.1f}"
    numbers = (memory, objects, f"{grown.handles:+.1f}", f"{grown.history:.0f}")
    return _columns((finding.algorithm, finding.case, *numbers), finding.verdict)


def _columns(cells: tuple[str, ...], last: str) -> str:
    words = "".join(cell.ljust(width) for cell, width in zip(cells[:2], _WIDTHS[:2], strict=True))
    numbers = zip(cells[2:], _WIDTHS[2:], strict=True)
    return f"{words}{''.join(cell.rjust(width) for cell, width in numbers)}  {last}"
