"""Damage to bytes: flips, cuts, repeats, foreign bytes, and nothing at all."""

from __future__ import annotations

import random

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
