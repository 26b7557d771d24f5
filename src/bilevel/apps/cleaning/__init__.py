"""Cleaning: which labels of a table are wrong, and a model that is not misled by them.

`clean` is the engine, on tensors; the other files are the job of `bilevel clean`, on tables.
"""

from bilevel.apps.cleaning.engine import Cleaning, clean, default_algorithm

__all__ = ["Cleaning", "clean", "default_algorithm"]
