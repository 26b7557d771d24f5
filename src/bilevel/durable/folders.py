"""The output folder: checked before the work, and filled once all of it has succeeded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bilevel.durable.exchange import replace_folder
from bilevel.durable.files import nearest_folder, try_to_write
from bilevel.durable.lock import held, locked
from bilevel.errors import UserError

_PREFIX, _DRAFT = ".bilevel-", "draft"


def check_folder(output: Path, force: bool) -> None:
    """Raise UserError where `filled` would fail, or would replace files without being told to."""
    check_writable(output, "the output ")
    with named_errors(output):
        _remove_abandoned(_beside(output))
        if output.is_dir() and any(output.iterdir()) and not force:
            raise UserError(f"the folder {output} is not empty: choose another, or use --force")


def check_writable(folder: Path, what: str = "") -> None:
    """Raise UserError where files cannot be written: before the work rather than after it."""
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
    locked as long as its owner lives: what a killed process left is told apart by that.
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
            with locked(target, wait=True):  # another's results are complete before ours come
                replace_folder(draft, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft, target)


def _beside(output: Path) -> Path:
    """Where a draft can be renamed from: next to the output, or in it if that is another disk."""
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
