"""The output folder: checked before the work, and filled once all of it has succeeded."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from bilevel.durable.files import nearest_folder, try_to_write
from bilevel.durable.lock import held, locked
from bilevel.errors import UserError

_PREFIX, _DRAFT = ".bilevel-", "draft"


def check_folder(output: Path, force: bool) -> None:
    """Raise UserError if `filled` would fail, or would replace files without `force`."""
    check_writable(output, "the output ")
    with named_errors(output):
        _remove_abandoned(_beside(output))
        if output.is_dir() and any(output.iterdir()) and not force:
            raise UserError(f"the folder {output} is not empty: choose another, or use --force")


def check_writable(folder: Path, what: str = "") -> None:
    """Raise UserError if files cannot be written there: before the work rather than after it."""
    with named_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{what}{folder} is a file: name a folder")
        try_to_write(folder)


def check_file(file: Path) -> None:
    """Raise UserError if this file could not be written: before the work rather than after it."""
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise UserError(f"cannot write to {file}: name a file in an existing folder")
    with named_errors(file, "name a file in another folder"):
        try_to_write(file.absolute().parent)


@contextmanager
def filled(output: Path) -> Iterator[Path]:
    """A draft folder, whose files move to the output, all or none, if the block succeeds.

    Other files in the output stay. The draft is on the same disk, so that it can be renamed, and
    locked while its owner lives, so that what a killed process left can be recognised.
    """
    target, advice = output.resolve(), "make room there, or choose another folder with --output"
    with (
        named_errors(output, advice),
        TemporaryDirectory(
            prefix=_PREFIX, dir=_beside(output), ignore_cleanup_errors=True
        ) as place,
        locked(Path(place)),
    ):
        draft = Path(place) / _DRAFT
        draft.mkdir()
        yield draft
        if target.is_dir():
            with locked(target, wait=True):  # wait until another process has written its results
                replace_folder(draft, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft, target)


def _beside(output: Path) -> Path:
    """Where a draft can be renamed from: next to the output, or inside it if on another disk."""
    target = output.resolve()
    parent = nearest_folder(target.parent)
    same_disk = not target.exists() or target.stat().st_dev == parent.stat().st_dev
    return parent if same_disk and os.access(parent, os.W_OK) else target


def _remove_abandoned(folder: Path) -> None:
    """Remove drafts whose owners were killed."""
    for place in folder.glob(f"{_PREFIX}*/{_DRAFT}"):
        if not place.parent.is_symlink() and not held(place.parent):
            shutil.rmtree(place.parent, ignore_errors=True)


@contextmanager
def named_errors(
    place: Path, advice: str = "choose another folder", act: str = "write"
) -> Iterator[None]:
    """Inside, an OSError becomes a UserError that names the place and says what to do."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot {act} to {place} ({error}): {advice}") from error


_HERE, _SWAP = -100, 2  # Linux: AT_FDCWD, RENAME_EXCHANGE


def replace_folder(draft: Path, target: Path) -> None:
    """Put the files of `draft` into the existing folder `target`, whose other files stay.

    If the system can swap two folders atomically, a kill leaves either the old or the new files.
    Otherwise, and where a folder cannot be moved (a mount point, or some process works in it), the
    old files are removed before the new ones arrive: a kill leaves no mixture.
    """
    if not _works_in(target) and _kept_along(draft, target) and _swapped(draft, target):
        return
    new = [draft / old.name for old in target.iterdir() if (draft / old.name).is_file()]
    for file in new:
        (target / file.name).unlink()
    for file in draft.iterdir():
        if file in new or not (target / file.name).exists():  # others were linked from there
            os.replace(file, target / file.name)


def _works_in(folder: Path) -> bool:
    """Whether we work in the folder: a shell in a swapped folder would see an empty one."""
    return Path.cwd().resolve().is_relative_to(folder)


def _kept_along(draft: Path, target: Path) -> bool:
    """Link everything that `target` has besides the new files into `draft`; False if impossible."""

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
