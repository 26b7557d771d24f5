"""Files that end: pipes wait for ever, and some devices never stop."""

from __future__ import annotations

import stat
from pathlib import Path

from bilevel.errors import UserError

_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}


def check_regular(path: Path, most_bytes: int | None = None) -> None:
    """Raise UserError unless there is a regular file, or a link to one, that is not too large."""
    try:
        found = path.stat()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise UserError(f"{path} is {kind}: name a file")
    if most_bytes is not None and found.st_size > most_bytes:
        raise UserError(
            f"{path} has {found.st_size:,} bytes, and at most {most_bytes:,} are read: make it "
            "smaller"
        )
