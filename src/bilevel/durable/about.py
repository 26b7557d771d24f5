"""What a result was made with: versions, machine, time and command."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

import bilevel


def about(command: str) -> dict[str, Any]:
    """What a reader needs to know of the machine and the versions."""
    return {
        "bilevel": bilevel.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }
