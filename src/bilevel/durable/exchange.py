"""A folder in the place of another, as a whole or not at all."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

_HERE, _SWAP = -100, 2  # Linux: AT_FDCWD, RENAME_EXCHANGE


def replace_folder(draft: Path, target: Path) -> None:
    """Put the files of `draft` into the existing folder `target`, whose other files stay.

    Where the system can swap two folders in one act, a kill leaves the old files or the new ones.
    Elsewhere, and where a folder cannot be moved (another disk is mounted there, or somebody works
    in it), the old files go before the new ones come: a kill leaves no mixture.
    """
    if not _works_in(target) and _kept_along(draft, target) and _swapped(draft, target):
        return
    new = [draft / old.name for old in target.iterdir() if (draft / old.name).is_file()]
    for file in new:
        (target / file.name).unlink()
    for file in draft.iterdir():
        if file in new or not (target / file.name).exists():  # the rest was linked from there
            os.replace(file, target / file.name)


def _works_in(folder: Path) -> bool:
    """A shell in a folder that was swapped would see an empty one."""
    return Path.cwd().resolve().is_relative_to(folder)


def _kept_along(draft: Path, target: Path) -> bool:
    """Link all that `target` has beside the new files into `draft`; False if that cannot be."""

    def link(old: str, new: str) -> None:
        if not os.path.lexists(new):
            os.link(old, new, follow_symlinks=False)

    try:
        shutil.copytree(target, draft, copy_function=link, symlinks=True, dirs_exist_ok=True)
    except OSError:  # such as a disk without links
        return False
    return True


def _swapped(one: Path, other: Path) -> bool:
    """Whether the two folders could be swapped."""
    if sys.platform != "linux":
        return False
    with suppress(AttributeError):  # of an old library
        swap = ctypes.CDLL(None).renameat2
        return bool(swap(_HERE, bytes(one), _HERE, bytes(other), _SWAP) == 0)
    return False
