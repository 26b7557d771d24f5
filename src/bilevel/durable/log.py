"""An append-only file, so that adding to it costs no more as it grows.

A reader has a mark: the length of the part that counts, and its checksum. What a killed process
wrote beyond its last mark is not read, and is overwritten.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from bilevel.durable.regular import check_regular
from bilevel.durable.sealed import DamagedError

_HEAD = b'{"file": "bilevel history"}\n'


class GrowingLog:
    """Lines of text in a file that belongs to this process.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.jsonl"
        >>> log = GrowingLog(file)
        >>> mark = log.add(["one", "two"])
        >>> _ = log.add(["three"])
        >>> GrowingLog(file).read(mark)
        ['one', 'two']
    """

    def __init__(self, path: Path) -> None:
        self.path, self._size, self._sum = path, 0, hashlib.sha256()

    def read(self, mark: dict[str, Any]) -> list[str]:
        """The lines up to a mark, after which further ones will be added.

        Raises:
            DamagedError: they are not what was written.
            OSError: they cannot be read.
            UserError: it is not a file, but a pipe or a device.
        """
        size, data = int(mark["size"]), b""
        if size:
            check_regular(self.path)
            data = self.path.read_bytes()[:size]
        found = hashlib.sha256(data)
        if len(data) != size or found.hexdigest() != mark["sha256"]:
            raise DamagedError(f"{self.path.name} is not what was written")
        self._size, self._sum = size, found
        return data.decode().splitlines()[1:]

    @property
    def is_there(self) -> bool:
        """Whether the file still has what was read or added; it may have been removed."""
        return not self._size or (self.path.is_file() and self.path.stat().st_size >= self._size)

    def add(self, lines: list[str]) -> dict[str, Any]:
        """Append lines to those read or added before; return the mark of all of them.

        Raises:
            OSError: they cannot be written; what was there stays.
        """
        if lines:
            head = b"" if self._size else _HEAD
            data = head + "".join(line + "\n" for line in lines).encode()
            self._write(data)
            self._size += len(data)
            self._sum.update(data)
        return {"size": self._size, "sha256": self._sum.hexdigest()}

    def _write(self, data: bytes) -> None:
        if self.path.is_symlink():  # somebody else's file, whatever it holds
            raise FileExistsError(f"{self.path} is a link: what it points to is not written to")
        with self.path.open("r+b" if self.path.is_file() else "xb") as file:
            if file.readable() and (head := file.read(len(_HEAD))) and not _HEAD.startswith(head):
                raise FileExistsError(f"{self.path} was not written by bilevel")
            file.seek(self._size)
            file.truncate()
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
