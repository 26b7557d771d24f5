"""The output folder: checked before the work, and filled when all of it has succeeded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bilevel.durable.files import try_to_write
from bilevel.errors import UserError


def check_folder(output: Path, force: bool) -> None:
    """Raise UserError where `filled` would fail, or would replace files without being told to."""
    with _named_errors(output):
        if output.exists() and not output.is_dir():
            raise UserError(f"the output {output} is a file: name a folder")
        if output.is_dir() and any(output.iterdir()) and not force:
            raise UserError(f"the folder {output} is not empty: choose another, or use --force")
        try_to_write(output)


def check_writable(folder: Path) -> None:
    """Raise UserError where files cannot be written: before the work, and not after it."""
    with _named_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file: name a folder")
        try_to_write(folder)


@contextmanager
def filled(output: Path) -> Iterator[Path]:
    """A draft folder, whose files move to the output if the block ends well.

    Other files in the output stay. The draft lies where it can be renamed: on the same disk.
    """
    with (
        _named_errors(output),
        TemporaryDirectory(prefix=".bilevel-", dir=_nearest(output)) as place,
    ):
        draft = Path(place) / "draft"
        draft.mkdir()
        yield draft
        target = output.resolve()
        if target.is_dir():
            for file in draft.iterdir():
                os.replace(file, target / file.name)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft, target)


def _nearest(output: Path) -> Path:
    """The output folder, or the nearest one above it that is there."""
    path = output.resolve()
    return next(folder for folder in (path, *path.parents) if folder.exists())


@contextmanager
def _named_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write to {output} ({error}): choose another folder") from error
