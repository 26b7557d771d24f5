"""Files of plain data with a checksum.

A file is what `torch.save` writes, and `torch.load(..., weights_only=True)` reads it: a ZIP
archive. Its last field, a comment, holds the SHA-256 of all the rest.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import torch

from bilevel.durable.files import replacing

_WORD = b"bilevel sha256 "
_SEAL = len(_WORD) + 64
_NO_COMMENT = b"\0\0"  # its length: the last two bytes of an archive


class DamagedError(Exception):
    """A file is not what was written."""


class UnsealedError(DamagedError):
    """A file has no checksum."""


def write(path: Path, content: Any) -> None:
    """Write a file, completely or not at all.

    Raises:
        TypeError: the content is not plain data, and could not be read again.
        OSError: it cannot be written.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.pt"
        >>> write(file, {"x": torch.ones(2)})
        >>> read(file), torch.load(file, weights_only=True)
        ({'x': tensor([1., 1.])}, {'x': tensor([1., 1.])})
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    archive = buffer.getvalue()
    try:
        _load(archive)
    except pickle.UnpicklingError as error:
        raise TypeError(
            "a checkpoint can hold numbers, text, tensors, and lists and dicts of them, but was "
            f"given something else: {_reason(error)}"
        ) from error
    seal = _WORD + hashlib.sha256(archive).hexdigest().encode()
    with replacing(path) as part, part.open("wb") as file:
        file.write(archive[: -len(_NO_COMMENT)])
        file.write(len(seal).to_bytes(2, "little") + seal)


def read(path: Path) -> Any:
    """The content of a file; loading runs no code from it.

    Raises:
        UnsealedError: it has no checksum.
        DamagedError: it is not what was written.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    seal = data[-_SEAL:]
    if not seal.startswith(_WORD):
        raise UnsealedError("it has no checksum: it was cut short, or something else wrote it")
    archive = data[: -_SEAL - 2] + _NO_COMMENT
    length = data[-_SEAL - 2 : -_SEAL]
    digest = hashlib.sha256(archive).hexdigest().encode()
    if seal != _WORD + digest or length != _SEAL.to_bytes(2, "little"):
        raise DamagedError("the checksum of its content is wrong")
    try:
        return _load(archive)
    except Exception as error:  # torch's own message and advice do not help here
        raise DamagedError("it does not hold plain data") from error


def is_sealed(path: Path) -> bool:
    """Whether `write` wrote the file, judging by its end."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _SEAL))
        return file.read(len(_WORD)) == _WORD


def _load(archive: bytes) -> Any:
    return torch.load(io.BytesIO(archive), weights_only=True)


def _reason(error: Exception) -> str:
    """The line of torch's message that names the type."""
    lines = [line.strip() for line in str(error).splitlines() if "WeightsUnpickler error" in line]
    return lines[0].removeprefix("WeightsUnpickler error: ") if lines else str(error)
