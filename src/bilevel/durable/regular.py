"""Regular files: pipes block forever, and some devices never end."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

from bilevel.errors import UserError, refusing

_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}

MOST_UNPACKED = 2**30  # bytes, which may be a thousand times as many as on the disk


def check_regular(path: Path, most_bytes: int | None = None) -> None:
    """Raise UserError unless it is a regular file, or a link to one, that is not too large."""
    with refusing(f"{path} cannot be read", OSError):
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise UserError(f"{path} is {kind}: name a file")
    if most_bytes is not None and found.st_size > most_bytes:
        raise UserError(
            f"{path} has {found.st_size:,} bytes, and at most {most_bytes:,} are read: make it "
            "smaller"
        )


def check_given(path: Path) -> None:
    """Raise UserError unless there is a file to read that is not empty."""
    if not path.exists():
        raise UserError(f"there is no file {path}")
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file in it")
    check_regular(path)
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")


def check_archive(path: Path) -> None:
    """Raise UserError if a ZIP archive is too large, by its directory alone."""
    with zipfile.ZipFile(path) as archive:
        check_unpacked(path, sum(member.file_size for member in archive.infolist()))


def check_unpacked(path: Path, size: int) -> None:
    """Raise UserError if a packed file has too many bytes."""
    if size > MOST_UNPACKED:
        raise UserError(
            f"{path} has more than {MOST_UNPACKED / 2**30:g} GiB in it: unpack it first, or make "
            "it smaller"
        )
