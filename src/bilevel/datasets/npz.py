"""Files of plain arrays, read without pickles and written completely or not at all."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilevel.durable.files import replacing
from bilevel.errors import refusing

_WRONG = (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
_DAMAGE = (*_WRONG, OSError, NotImplementedError, RuntimeError)  # ... of a ZIP's flags and offsets


@contextmanager
def open_npz(path: Path, name: str) -> Iterator[Mapping[str, NDArray[Any]]]:
    """The arrays of an .npz file of the data set `name`, each read on access.

    Raises:
        UserError: the file is damaged, holds a pickle, or lacks an array.
    """
    advice = f". Delete it and run `bilevel data get {name}`."
    with refusing(f"{path} is damaged or has another layout", *_DAMAGE, advice=advice):
        if not zipfile.is_zipfile(path):
            raise ValueError("not an .npz file")
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays


def write_npz(
    paths: Sequence[Path],
    contents: Iterable[Mapping[str, Any]],
    save: Callable[..., None] = np.savez,
) -> None:
    """Write files; each appears complete, and none before the last of them is made."""
    with ExitStack() as stack:
        drafts = [stack.enter_context(replacing(path)) for path in paths]
        for draft, arrays in zip(drafts, contents, strict=True):
            with draft.open("wb") as file:
                save(file, **arrays)
