"""Rows that stay in their files: data larger than memory.

A batch reads the rows that it asks for, products on all rows read them block by block. What is read
goes through buffers, never through a memory map, so that the resident memory stays bounded.
"""

from bilevel.problem.stored.base import StoredRows
from bilevel.problem.stored.npy import NpyRows, write_npy
from bilevel.problem.stored.parquet import ParquetRows

__all__ = ["NpyRows", "ParquetRows", "StoredRows", "write_npy"]
