"""Damaged pictures of every format, and what only calls itself a picture."""

from __future__ import annotations

import io
import random
from pathlib import Path

from PIL import Image

from attack.mutation import mutate
from attack.tally import Tally, expect
from bilevel.apps.few_shot.picture_folders import Reader

NAME, SHARE = "pictures", 1200
_FORMATS = ("png", "gif", "jpeg", "bmp", "tiff", "webp", "ppm")
_FOREIGN = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n",
    b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    b"",
)


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    made, file = [_picture(kind, chance) for kind in _FORMATS], Path("a.png")
    for i in range(tries):
        foreign = chance.random() < 0.02
        file.write_bytes(chance.choice(_FOREIGN) if foreign else mutate(made[i % 7], chance))
        tally.attempt(f"{_FORMATS[i % 7]} {i}", lambda: _read(file))


def _read(file: Path) -> None:
    pixels = Reader((3, 12, 12)).read(file, "a").pixels
    expect(pixels.shape == (12, 12, 3), f"pixels of shape {pixels.shape}")


def _picture(kind: str, chance: random.Random) -> bytes:
    frames = [Image.frombytes("RGB", (12, 12), chance.randbytes(432)) for _ in "abc"]
    whole = io.BytesIO()
    animated = {"save_all": True, "append_images": frames[1:]} if kind == "gif" else {}
    frames[0].save(whole, kind, **animated)
    return whole.getvalue()
