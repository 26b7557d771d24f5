"""What a result was made with: code, versions, machine, load, time and command."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bilevel


def about(command: str) -> dict[str, Any]:
    """What a reader needs to know about the code, the machine and the versions."""
    return {
        "bilevel": bilevel.__version__,
        **_commit(Path(bilevel.__file__).parent),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_before": load(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }


def load() -> list[float] | None:
    """The load average over 1, 5 and 15 minutes; None where the system does not have it."""
    try:
        return [round(number, 2) for number in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def _commit(place: Path) -> dict[str, Any]:
    """The commit of the code, and whether files differ from it; None outside a repository."""
    commit = _git(place, "rev-parse", "HEAD")
    tracked = commit and _git(place, "ls-files", "--error-unmatch", "__init__.py")
    if not tracked:
        return {"commit": None, "changed": None}
    changes = _git(place, "status", "--porcelain", "--untracked-files=no", ".")
    return {"commit": commit, "changed": bool(changes)}


def _git(place: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
