"""Untrusted pickles: only arrays, numbers, text and plain containers are accepted.

A pickle is a program: it names functions, which are called while it is loaded. Here none of them
is. The few names that numpy writes for an array lead to the stand-ins below, which make arrays
from the pickle's bytes by `np.frombuffer`; any other name is refused before it is looked up. The
stand-ins are the same for numpy 1 and 2, and for pickles by Python 2.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bilevel.errors import UserError, quoted

# What asking for the entries of another file raises.
MISFITS = LookupError, TypeError, ValueError, AttributeError
_PLAIN = re.compile(r"[<>=|]?[biufSU]\d{1,4}")  # booleans, numbers and text: no objects, no records


def load_arrays(stream: BinaryIO, what: str) -> dict[str, Any]:
    """Load a dict from a pickle; `np.asarray` turns its entries into arrays.

    Args:
        stream: the pickle, of any protocol, by Python 2 or 3. Strings of Python 2 come as bytes,
            except for the dict's own keys.
        what: the pickle's name in messages.

    Raises:
        UserError: it is damaged, is not a dict, or asks for anything but arrays.

    Example:
        >>> import io, pickle
        >>> import numpy as np
        >>> from bilevel.datasets.array_pickle import load_arrays
        >>> entry = {"labels": [3, 1], "data": np.eye(2, dtype=np.uint8)}
        >>> found = load_arrays(io.BytesIO(pickle.dumps(entry)), "example")
        >>> found["labels"], np.asarray(found["data"]).tolist()
        ([3, 1], [[1, 0], [0, 1]])
        >>> load_arrays(io.BytesIO(pickle.dumps({"f": eval})), "example")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        bilevel.errors.UserError: example asks for builtins.eval, which makes no array: ...
    """
    try:
        entries = _ArraysOnly(stream, what).load()
    except (UserError, OSError):
        raise
    except Exception as error:  # the bytes of a damaged pickle can mean anything
        raise UserError(f"{what} is not a complete pickle of arrays: {error}") from error
    if not isinstance(entries, dict):
        raise UserError(f"{what} should hold a dict, but holds a {type(entries).__name__}")
    return {text(key): value for key, value in entries.items()}


def text(value: Any) -> str:
    """Text as Python 2 or Python 3 wrote it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class PickledArray:
    """Stands in for an array until `np.asarray` is called."""

    def __setstate__(self, state: Any) -> None:
        *_, shape, kind, fortran, raw = state
        self._set(raw, kind, shape, "F" if fortran else "C", None)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._array if dtype is None else self._array.astype(dtype)

    def _set(self, raw: Any, kind: Any, shape: Any, order: Any, axes: Any) -> None:
        if not isinstance(raw, bytes | bytearray) or not isinstance(kind, _Kind):
            raise pickle.UnpicklingError("an array of something other than numbers or text")
        array = np.frombuffer(raw, kind.dtype).reshape(shape, order=order)
        self._array = array if axes is None else array.transpose(axes)


class _Kind:
    """Stands in for `np.dtype`."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not _PLAIN.fullmatch(text(code)):
            kind = quoted(text(code))
            raise pickle.UnpicklingError(f"an array of {kind}, not of numbers or text")
        self.dtype = np.dtype(text(code))

    def __setstate__(self, state: Any) -> None:
        order: Any = text(state[1])  # the rest concerns records
        self.dtype = self.dtype.newbyteorder(order)


class _ArraysOnly(pickle.Unpickler):
    def __init__(self, stream: BinaryIO, what: str) -> None:
        super().__init__(stream, encoding="bytes")
        self._what = what
        self._stand_ins = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._stand_ins:
            raise UserError(
                f"{self._what} asks for {module}.{name}, which makes no array: nothing of it was "
                f"run. It is not the published file; do not load it by other means."
            )
        return self._stand_ins[module, name]

    def persistent_load(self, key: Any) -> Any:
        raise pickle.UnpicklingError(f"a reference {quoted(key)} to something outside of it")


def _stand_ins() -> dict[tuple[str, str], Callable[..., Any]]:
    """By the names that pickles use. Fresh for each pickle, because a pickle can alter them."""

    def reconstruct(*_: Any) -> PickledArray:
        return PickledArray()

    def frombuffer(raw: Any, kind: Any, shape: Any, order: Any, axes: Any = None) -> PickledArray:
        array = PickledArray()
        array._set(raw, kind, shape, order if axes is None else "C", axes)
        return array

    def scalar(kind: _Kind, raw: bytes) -> Any:
        return np.frombuffer(raw, kind.dtype)[0]

    def encode(characters: str, encoding: str) -> bytes:
        if encoding != "latin1":  # which is how Python 3 writes bytes for Python 2
            raise pickle.UnpicklingError(f"text in the encoding {quoted(encoding)}")
        return characters.encode("latin1")

    found: dict[tuple[str, str], Callable[..., Any]] = {
        ("numpy", "ndarray"): PickledArray,
        ("numpy", "dtype"): _Kind,
        ("_codecs", "encode"): encode,
    }
    for core in ("numpy.core", "numpy._core"):  # numpy 1 and 2
        found[f"{core}.multiarray", "_reconstruct"] = reconstruct
        found[f"{core}.multiarray", "scalar"] = scalar
        found[f"{core}.numeric", "_frombuffer"] = frombuffer
    return found
