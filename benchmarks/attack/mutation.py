"""Damage: flipped, cut, repeated and foreign bytes; and odd content in a file that is whole."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
from typing import Any

_ODD = (None, True, -1, 0, 2**70, 1e308, 1.5, "", "x", "=1+1", [], {}, [[]], {"a": None})
_WORDS = (b"\0" * 8, b"\xff" * 8, b"=1+1", b"\n\n", b"[[[", b"'", b'"', b"-1", b"1e400", b"NaN")


def mutate(content: bytes, chance: random.Random) -> bytes:
    """The same bytes with some damage."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 if data:
                data[place % len(data)] ^= 1 << chance.randrange(8)
            case 1:
                del data[place:]
            case 2:
                del data[place : place + chance.randrange(1, 40)]
            case 3:
                data[place:place] = chance.choice(_WORDS)
            case 4:
                data[place:place] = data[place : place + chance.randrange(1, 200)]
            case _:
                data[place : place + 4] = chance.randbytes(4)
    return bytes(data)


def crafted(content: bytes, chance: random.Random) -> bytes:
    """Damage that no checksum of the file tells of: inside an archive, or a value of JSON."""
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = chance.choice(list(members))
        members[name] = crafted(members[name], chance)
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        return whole.getvalue()
    if content.startswith(b"\x1f\x8b"):
        return gzip.compress(mutate(gzip.decompress(content), chance))
    head = content[:128] if content.startswith(b"\x93NUMPY") else b""  # of an array
    try:
        value = json.loads(content[len(head) :])
    except ValueError:
        return head + mutate(content[len(head) :], chance)
    # The length of an array of bytes stands in its head: it stays, with blanks or a cut.
    text = json.dumps(_odd(value, chance)).encode()
    return head + text.ljust(len(content) - 128)[: len(content) - 128] if head else text


def _odd(value: Any, chance: random.Random) -> Any:
    """The same with one part of it replaced or taken away."""
    if not value or not isinstance(value, dict | list) or chance.random() < 0.1:
        return chance.choice(_ODD)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    chosen, found = chance.choice(keys), value.copy()
    if chance.random() < 0.1:
        del found[chosen]
    else:
        found[chosen] = _odd(value[chosen], chance)
    return found
