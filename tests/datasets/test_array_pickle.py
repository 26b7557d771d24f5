"""Pickles from outside: arrays come through, and nothing else is looked up or run."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilevel.datasets.array_pickle import load_arrays
from bilevel.errors import UserError

ARRAYS = {
    "images": np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "turned": np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2).transpose(0, 2, 3, 1),
    "slice": np.arange(10)[::3],
    "big-endian": np.arange(3, dtype=">i4"),
    "mask": np.array([True, False]),
    "names": np.array(["n01532829", "n09"]),
    "raw names": np.array([b"n01532829", b"n09"]),
}

# What Python 2 and numpy 1 wrote for {"fine_labels": [3], "data": np.uint8([[7, 9]])}, as in
# the head of CIFAR-100's files.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x0bfine_labelsq\x02]q\x03K\x03aU\x04dataq\x04"
    b"cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85U\x01b\x87Rq\x07"
    b"(K\x01K\x01K\x02\x86cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\x87Rq\x09"
    b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x02\x00\x00\x00\x07\x09tbu."
)


def load(raw: bytes) -> dict[str, Any]:
    return load_arrays(io.BytesIO(raw), "file.pkl")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_any_protocol_comes_back_as_it_was(name: str, protocol: int) -> None:
    raw = pickle.dumps({"array": ARRAYS[name], "count": 3}, protocol)
    found = load(raw)
    array = np.asarray(found["array"])
    np.testing.assert_array_equal(array, ARRAYS[name])
    assert array.dtype == ARRAYS[name].dtype
    assert found["count"] == 3


@pytest.mark.parametrize("protocol", range(3))
def test_numpy_1_and_numpy_2_write_the_same_to_us(protocol: int) -> None:
    raw = pickle.dumps({"a": np.arange(3), "b": [np.int64(4)]}, protocol)
    for core in (b"numpy.core.", b"numpy._core."):
        named = raw.replace(b"numpy._core.", core).replace(b"numpy.core.", core)
        assert core in named
        found = load(named)
        np.testing.assert_array_equal(found["a"], np.arange(3))
        assert found["b"] == [4]


def test_what_python_2_wrote_is_read_with_its_text_as_bytes_and_its_keys_as_text() -> None:
    found = load(PYTHON_2)
    assert found["fine_labels"] == [3]
    np.testing.assert_array_equal(found["data"], np.array([[7, 9]], np.uint8))
    assert load(b"\x80\x02}q\x01U\x01aU\x02n1s.") == {"a": b"n1"}


def test_an_array_may_be_asked_for_in_another_type() -> None:
    found = load(pickle.dumps({"a": np.array([1, 2], np.int16)}))
    assert np.asarray(found["a"], np.int64).dtype == np.int64


def calling(module: str, name: str, *arguments: Any) -> bytes:
    """A pickle that calls a function when it is loaded, as an attacker would write it."""
    asked = b"c" + f"{module}\n{name}\n".encode()
    packed = pickle.dumps(arguments, 2)[2:-1]
    return b"\x80\x02}(U\x01a" + asked + packed + b"Ru."


@pytest.mark.parametrize(
    "function",
    [
        "os system",
        "posix system",
        "nt system",
        "subprocess check_call",
        "builtins eval",
        "builtins exec",
        "builtins getattr",
        "builtins open",
        "builtins __import__",
        "__builtin__ eval",
        "__builtin__ file",
        "importlib import_module",
        "pickle loads",
        "_pickle loads",
        "copyreg _reconstructor",
        "functools partial",
        "operator attrgetter",
        "numpy load",
        "numpy fromfile",
        "numpy memmap",
        "numpy save",
        "numpy array",
        "numpy.ctypeslib load_library",
        "numpy.core.multiarray fromfile",
        "numpy._core.multiarray frombuffer",
        "numpy._core.numeric fromfunction",
        "numpy.testing rundocs",
        "numpy.f2py compile",
        "torch load",
        "bilevel.datasets.array_pickle load_arrays",
        "_codecs decode",
        "collections OrderedDict",
    ],
)
def test_any_other_name_is_refused_and_named(function: str, tmp_path: Path) -> None:
    module, name = function.split()
    canary = tmp_path / "canary"
    raw = calling(module, name, f"touch {canary}")
    with pytest.raises(UserError, match=rf"^file\.pkl asks for {module}\.{name}, which makes no"):
        load(raw)
    assert not canary.exists()


class Attack:
    """An object that names a function in its pickle."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.asked = (function, arguments)

    def __reduce__(self) -> Any:
        return self.asked


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_attack_is_refused_in_every_protocol_and_place(protocol: int, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    attack = Attack(os.mkdir, str(canary))
    places: list[Any] = [
        attack,
        {"a": attack},
        {"a": [1, (2, attack)]},
        {"image_data": ARRAYS["images"], "class_dict": {"n": attack}},
        {"a": np.array([attack], object)},
    ]
    for place in places:
        raw = pickle.dumps(place, protocol)
        with pytest.raises(UserError, match=r"mkdir|not of numbers"):
            load(raw)
        assert not canary.exists()
    pickle.loads(pickle.dumps(attack, protocol))
    assert canary.exists(), "the attack is one: plain pickle falls for it"


def test_a_dotted_name_leads_to_no_method_of_what_is_admitted() -> None:
    for name in ("ndarray.tofile", "ndarray.__new__", "dtype.__subclasses__"):
        word = bytes([0x8C, 5]) + b"numpy" + bytes([0x8C, len(name)]) + name.encode()
        with pytest.raises(UserError, match=f"numpy.{name}"):
            load(b"\x80\x04}" + word + b"\x93\x94.")


def test_what_is_admitted_cannot_be_altered_for_the_next_pickle() -> None:
    """BUILD sets attributes of whatever is on the stack, functions and classes as well."""
    state = pickle.dumps((None, {"__defaults__": (1,), "__setstate__": 1, "dtype": 1}), 2)[2:-1]
    good = pickle.dumps({"a": np.arange(3)}, 2)
    for name in (
        "_codecs\nencode",
        "numpy\nndarray",
        "numpy\ndtype",
        "numpy.core.multiarray\n_reconstruct",
        "numpy.core.numeric\n_frombuffer",
    ):
        raw = b"\x80\x02}(U\x01ac" + name.encode() + b"\n" + state + b"bu."
        with contextlib.suppress(UserError):
            load(raw)
        np.testing.assert_array_equal(load(good)["a"], np.arange(3))


@pytest.mark.parametrize("kind", ["O", "V8", "M8[s]", "i4,i4", "i99999", "", "object"])
def test_arrays_of_objects_and_records_are_refused(kind: str) -> None:
    raw = PYTHON_2.replace(b"U\x02u1", b"U" + bytes([len(kind)]) + kind.encode())
    with pytest.raises(UserError, match="not of numbers or text"):
        load(raw)


def test_an_array_of_a_list_of_objects_is_refused() -> None:
    raw = PYTHON_2.replace(b"T\x02\x00\x00\x00\x07\x09", b"]")
    with pytest.raises(UserError, match="something other than numbers"):
        load(raw)


def test_bytes_are_taken_in_their_one_encoding_only() -> None:
    raw = pickle.dumps({"a": b"\xff\x00"}, 2)
    assert load(raw) == {"a": b"\xff\x00"}
    with pytest.raises(UserError, match="encoding 'utf-7'"):
        load(raw.replace(struct.pack("<I", 6) + b"latin1", struct.pack("<I", 5) + b"utf-7"))


def test_a_pickle_that_is_cut_anywhere_is_refused() -> None:
    raw = pickle.dumps(ARRAYS, 4)
    for end in range(0, len(raw), 7):
        with pytest.raises(UserError, match=r"file\.pkl"):
            load(raw[:end])


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not a complete pickle"),
        (b"\x89PNG\r\n", "not a complete pickle"),
        (b"\x80\x02P1\n.", "not a complete pickle"),
        (b"\x80\x02U\x01aQ.", "a reference b'a' to something outside"),
        (b"\x80\x02\x82\x07.", "not a complete pickle"),  # an extension that nobody registered
        (pickle.dumps([1, 2]), "should hold a dict, but holds a list"),
        (PYTHON_2.replace(b"T\x02\x00\x00\x00\x07\x09", b"T\x01\x00\x00\x00\x07"), "reshape"),
    ],
)
def test_what_is_no_pickle_of_a_dict_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load(raw)
