"""ANIL's derivative: ours, and the loop that users of learn2learn write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from few_shot import Setting, embedding_alone
from torch import Tensor

from race.case import Array
from race.tasks import TasksCase


def ours(case: TasksCase) -> Callable[[], Array]:
    setting = Setting.make(case.size, case.tasks, torch.float32)
    return lambda: _flat(setting.derivative(case.steps))


def one_task_at_a_time(case: TasksCase) -> Callable[[], Array]:
    setting = Setting.make(case.size, case.tasks, torch.float32)
    return lambda: _flat(setting.derivative_of_loop(case.steps))


def convolutions(case: TasksCase) -> Callable[[], None]:
    """The loop without heads."""
    setting = Setting.make(case.size, case.tasks, torch.float32)
    return lambda: embedding_alone(setting.network, setting.images)


def truth(case: TasksCase) -> Array:
    """The loop in double precision."""
    setting = Setting.make(case.size, case.tasks, torch.float64)
    return _flat(setting.derivative_of_loop(case.steps))


def _flat(parts: list[Tensor]) -> Array:
    found: Array = np.concatenate([part.numpy().reshape(-1) for part in parts])
    return found
