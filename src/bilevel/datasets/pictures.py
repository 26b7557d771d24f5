"""Pictures in known formats, by Pillow."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from bilevel.datasets.extras import extra
from bilevel.errors import UserError, short

# Left to itself, Pillow goes by a file's content, and starts Ghostscript for a PostScript program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MOST_PIXELS = 50_000_000  # a small file can unfold to gigabytes


@contextmanager
def opened(raw: bytes, what: str) -> Iterator[Any]:
    """A Pillow image; anything wrong with it, also inside the block, raises UserError.

    Args:
        raw: the bytes of its file.
        what: its name in messages.
    """
    pillow = extra("PIL.Image")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters is refused below or by Pillow
            with pillow.open(BytesIO(raw), formats=FORMATS) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise UserError(
                        f"{what} has {width:,}×{height:,} pixels, and at most {MOST_PIXELS:,} are "
                        "read: save it smaller"
                    )
                yield image
    except UserError:
        raise
    except Exception as error:  # decoders raise anything on damaged data
        strange = isinstance(error, pillow.UnidentifiedImageError)
        reason = f"it is none of {', '.join(FORMATS)}" if strange else short(repr(error))
        raise UserError(f"{what} cannot be read as a picture: {reason}") from error


def picture(raw: bytes, what: str, mode: str) -> Any:
    """Decode a picture.

    Args:
        raw: the bytes of its file.
        what: its name in messages.
        mode: Pillow's: "L" for grey, "RGB" for colours.

    Returns:
        A Pillow image of this mode.
    """
    with opened(raw, what) as image:
        return image.convert(mode)
