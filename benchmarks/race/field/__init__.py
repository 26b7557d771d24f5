"""Contests on the field's problems: compiled stretches against jitted scans of the same methods."""
