"""Pictures as they are published, by Pillow."""

from __future__ import annotations

import io
from typing import Any

from bilevel.datasets.extras import extra
from bilevel.errors import UserError


def picture(raw: bytes, what: str, mode: str) -> Any:
    """Decode a picture.

    Args:
        raw: the bytes of its file.
        what: names it in a message.
        mode: Pillow's: "L" for grey, "RGB" for colours.

    Returns:
        A Pillow image of this mode.
    """
    pillow = extra("PIL.Image")
    try:
        with pillow.open(io.BytesIO(raw)) as opened:
            return opened.convert(mode)
    # Decoders tell of damage by any of these.
    except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        raise UserError(f"{what} is not a picture that can be read: {error}") from error
