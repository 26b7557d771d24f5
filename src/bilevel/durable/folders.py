"""The output folder: checked before the work, and filled once all of it has succeeded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bilevel.durable.files import nearest_folder, try_to_write
from bilevel.errors import UserError


def check_folder(output: Path, force: bool) -> None:
    """Raise UserError where `filled` would fail, or would replace files without being told to."""
    check_writable(output, "the output ")
    with named_errors(output):
        if output.is_dir() and any(output.iterdir()) and not force:
            raise UserError(f"the folder {output} is not empty: choose another, or use --force")


def check_writable(folder: Path, what: str = "") -> None:
    """Raise UserError where files cannot be written: before the work rather than after it."""
    with named_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{what}{folder} is a file: name a folder")
        try_to_write(folder)


@contextmanager
def filled(output: Path) -> Iterator[Path]:
    """A draft folder, whose files move to the output if the block succeeds.

    Other files in the output stay. The draft is on the same disk, so that it can be renamed.
    """
    with (
        named_errors(output),
        TemporaryDirectory(prefix=".bilevel-", dir=nearest_folder(output.resolve())) as place,
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


@contextmanager
def named_errors(
    place: Path, advice: str = "choose another folder", act: str = "write"
) -> Iterator[None]:
    """Inside, an OSError becomes a UserError that names the place and says what to do."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot {act} to {place} ({error}): {advice}") from error
