"""Files that appear under their name complete, or not at all."""

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
    """A path to write to; the file replaces `path` once the block has succeeded.

    The content is on the disk before it gets the name, and the name is on the disk before this
    returns: neither a kill nor a power failure leaves half a file.

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
    """Remove what killed processes left of `replacing`, from a folder that nobody else uses."""
    for part in folder.iterdir():
        if _PART.fullmatch(part.name) and part.is_file():
            part.unlink(missing_ok=True)


def try_to_write(folder: Path) -> None:
    """Raise OSError if no file can be created in the folder, or in its nearest existing parent.

    Only an attempt can tell: the permissions of a superuser say nothing about a read-only disk.
    """
    with TemporaryFile(dir=nearest_folder(folder.absolute())) as file:
        file.write(b"0")
        file.flush()


def nearest_folder(path: Path) -> Path:
    """The folder at an absolute path, or its nearest existing parent."""
    return next(place for place in (path, *path.parents) if place.exists())


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
