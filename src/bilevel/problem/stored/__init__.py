"""Rows that stay in their files, for data larger than memory.

A batch reads only its own rows; products on all rows read them block by block. Data are read into
buffers, never by a memory map, so that the resident memory stays bounded.
"""

from bilevel.problem.stored.base import StoredRows
from bilevel.problem.stored.npy import NpyRows, write_npy
from bilevel.problem.stored.parquet import ParquetRows

__all__ = ["NpyRows", "ParquetRows", "StoredRows", "write_npy"]
