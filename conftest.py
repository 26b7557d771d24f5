"""What holds for every test and every example of the documentation."""

import random

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    """No test depends on chance: what draws from a global generator draws the same each time."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  # a user's code may draw from it
    torch.manual_seed(0)
