"""Data sets: one file each, found by being in this folder.

Files lie in the folder that the environment variable `BILEVEL_DATA` names, else in the user's
cache. What is missing is downloaded from its canonical source and checked; what is there is only
read.
"""

from bilevel.datasets.catalogue import catalogue, load, load_images
from bilevel.datasets.corruption import Corruption, corrupt
from bilevel.datasets.extras import data_folder
from bilevel.datasets.field_problems import Benchmark, benchmark, benchmarks
from bilevel.datasets.image_origin import ImageClasses, ImageOrigin, Images
from bilevel.datasets.origin import Origin
from bilevel.datasets.tables import Dataset, TableOrigin

__all__ = [
    "Benchmark",
    "Corruption",
    "Dataset",
    "ImageClasses",
    "ImageOrigin",
    "Images",
    "Origin",
    "TableOrigin",
    "benchmark",
    "benchmarks",
    "catalogue",
    "corrupt",
    "data_folder",
    "load",
    "load_images",
]
