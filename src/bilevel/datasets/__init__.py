"""Data sets: one file each, found by being in this folder.

Files lie in the folder that the environment variable `BILEVEL_DATA` names, else in the user's
cache. What is missing is downloaded from its canonical source and checked; what is there is only
read.
"""

from bilevel.datasets.catalogue import catalogue, load
from bilevel.datasets.corruption import Corruption, corrupt
from bilevel.datasets.folder import data_folder
from bilevel.datasets.origin import Dataset, Origin

__all__ = ["Corruption", "Dataset", "Origin", "catalogue", "corrupt", "data_folder", "load"]
