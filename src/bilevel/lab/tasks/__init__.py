"""Tasks: bilevel problems made from data sets, one file each, found by being in this folder."""

import sys

from bilevel.discovery import defined_in
from bilevel.lab.tasks.base import Instance, Task


def kinds() -> dict[str, type[Task]]:
    """Every task by its kind, the name that experiments use.

    Example:
        >>> from bilevel.lab.tasks import kinds
        >>> print(*kinds())
        few-shot hyper-cleaning per-feature
    """
    found = defined_in(sys.modules[__name__], Task).values()
    return dict(sorted((task.kind, task) for task in found))


__all__ = ["Instance", "Task", "kinds"]
