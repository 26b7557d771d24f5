"""Files from canonical sources, with their checksums."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bilevel.datasets.extras import extra
from bilevel.datasets.origin import Bar, BarFor
from bilevel.errors import UserError, refusing

NOT_GZIP = gzip.BadGzipFile, EOFError, zlib.error


@dataclass(frozen=True)
class Remote:
    """A file that is published.

    Args:
        url: where it is.
        checksum: such as "sha256:440f..."; None where its content is checked instead.
        name: what the file is called in the data folder, if not as in the url.
    """

    url: str
    checksum: str | None
    name: str | None = None

    @property
    def file(self) -> str:
        return self.name or self.url.rpartition("/")[2]


def fetch_missing(
    name: str, folder: Path, remotes: Sequence[Remote], progress: BarFor | None
) -> list[Path]:
    """Download the files that the data set `name` lacks in its folder; return their paths."""
    missing = [remote for remote in remotes if not (folder / remote.file).is_file()]
    for i, remote in enumerate(missing):
        bar = progress(remote.file) if progress else None
        wanted = "\n".join(f"  {r.url}{f' as {r.name}' * bool(r.name)}" for r in missing[i:])
        advice = (
            f"\nTry again, or get these files by other means and put them, unchanged, into "
            f"{folder}\n{wanted}\n"
            f"or set BILEVEL_DATA to a folder whose subfolder {folder.name} has them."
        )
        with refusing(f"{name}: could not download {remote.file}", OSError, advice=advice):
            download(remote.url, remote.checksum, folder / remote.file, bar)
    return [folder / remote.file for remote in missing]


def download(url: str, checksum: str | None, target: Path, bar: Bar | None) -> None:
    """Get one file by pooch: it appears under its name when it is complete and checked.

    Args:
        url: where it is.
        checksum: as in `Remote`.
        target: where to put it.
        bar: shows the progress, in bytes.

    Raises:
        OSError: there is no network, the server does not have it, or the disk refuses it.
        UserError: the server gave another file.
    """
    pooch = extra("pooch")
    downloader = pooch.HTTPDownloader(progressbar=bar if bar is not None else False)
    try:
        pooch.retrieve(url, checksum, fname=target.name, path=target.parent, downloader=downloader)
    except ValueError as error:  # requests' own value errors, such as a bad address, are OSErrors
        if isinstance(error, OSError):
            raise
        raise UserError(f"{url} gave a file that is not the canonical one: {error}") from error
    target.chmod(0o644)  # pooch's files are for their owner alone; data folders are shared


def verify(path: Path, checksum: str | None) -> None:
    """Refuse a file with a different checksum; nothing is checked against None."""
    if checksum is None:
        return
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, algorithm).hexdigest()
    if found != expected:
        raise UserError(
            f"{path} is damaged or not the canonical file: its {algorithm} is {found}, expected "
            f"{expected}. Delete it and run `bilevel data get {path.parent.name}`."
        )
