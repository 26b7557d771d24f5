"""Files that appear whole, under their name, or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

_PART = re.compile(r"\.bilevel-\d+-.*\.part(\..*)?")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; it replaces `path` once the block has succeeded.

    The content is on the disk before it gets the name, and the name before this ends: neither a
    kill nor a power failure leaves half a file.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with replacing(target) as part:
        ...     _ = part.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    part = path.with_name(f".bilevel-{os.getpid()}-{path.stem}.part{path.suffix}")
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def remove_parts(folder: Path) -> None:
    """Remove what killed processes left of `replacing`, from a folder that no other one uses."""
    for part in folder.iterdir():
        if _PART.fullmatch(part.name) and part.is_file():
            part.unlink(missing_ok=True)


def try_to_write(folder: Path) -> None:
    """Raise OSError if no file can be made in the folder, or in the nearest one that exists.

    Only an attempt can tell: a superuser's rights say nothing about a read-only disk.
    """
    with TemporaryFile(dir=nearest_folder(folder.absolute())) as file:
        file.write(b"0")
        file.flush()


def nearest_folder(path: Path) -> Path:
    """The folder at an absolute path, or the nearest one above it that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
