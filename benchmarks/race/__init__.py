"""The race: the same mathematics by several libraries, in one run (see benchmarks/race.py)."""
