"""One process at a time in a folder."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bilevel.errors import UserError


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock an existing folder against other processes that lock it, too.

    The system releases the lock when the process ends, for whatever reason. Where there are no
    locks (Windows, some network disks), nothing is locked. `wait` waits for the lock.

    Raises:
        UserError: another process, or another run of this one, is at work in the folder.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise UserError(
                    f"another run is at work in {folder}: wait until it ends, or choose "
                    "another folder"
                ) from error
        yield
    finally:
        os.close(descriptor)


def held(folder: Path) -> bool:
    """Whether a process holds the lock of a folder; True where there is no way to know."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # it is gone
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)
