"""From an algorithm to a result: the loop, its limits, its records and its checkpoints."""
