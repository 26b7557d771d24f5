"""3×3 convolutions with 4 multiplications per pixel and pair of channels instead of 9.

An output z of 2×2 pixels depends on a tile d of 4×4 pixels of the input, and is, for each pair of
channels,

    z = A'[(G w G') ∘ (B'd B)]A

so that a convolution is 16 matrix products, one for each place of a tile: (tiles × channels) by
(channels × filters). They come between a pass that makes B'd B and one that makes z. Backwards,
the derivative by the input is a convolution with turned weights, and that by w is

    ∂w = G'[Σ over tiles of (B'd B) ∘ (A ∂z A')]G

In single precision that is as accurate as a sum over 9 places: all factors are ±1 and 1/2.

Images are (images, height, width, channels), flat; what stands at the places of some tiles is
(16, `ROWS`, channels), flat. `narrow`, made of `one`, is one register of channels and `wide` two.

Reference: Lavin & Gray, "Fast algorithms for convolutional neural networks", CVPR 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bilevel.kernels.kernel import compiling, inner, kernel
from bilevel.kernels.registers import count, filled, item, load, of_sizes, store

TILES = 48  # at a time, which stay in the cache: a multiple of 6
ROWS = TILES + 1  # not a power of two apart: places would share cache lines


def tiles(n: int, height: int, width: int) -> int:
    """How many there are, which threads can share."""
    return n * ((height + 1) // 2) * ((width + 1) // 2)


@kernel
def convolve(image, factors, out, shape, one, two, first, last):
    """out = w * image, where factors are G w G' as (16, filters/wide, channels, wide), flat.

    `shape` is height, width, channels, filters; the tiles are those from `first` to `last`.
    """
    compiling()
    narrow, wide = of_sizes(one), of_sizes(two)
    height, width, channels, filters = shape
    # Zeros, not anything: `multiply` goes beyond the last tile, and denormal numbers are slow.
    inputs = np.zeros(16 * ROWS * channels, image.dtype)
    outputs = np.zeros(16 * ROWS * filters, image.dtype)
    for a in range(first, last, TILES):
        b = min(last, a + TILES)
        split(image, a, b, (height, width, channels), inputs, narrow)
        for place in range(16):
            multiply(inputs, factors, outputs, place, b - a, channels, filters, wide)
        join(outputs, a, b, (height, width, filters), out, narrow)


@kernel
def correlate(image, of_out, sums, shape, one, two, first, last):
    """sums += Σ (B'd B) ∘ (A ∂z A') over these tiles, as (16, channels, filters)."""
    compiling()
    narrow, wide = of_sizes(one), of_sizes(two)
    height, width, channels, filters = shape
    # `accumulate` reads the rows of these tiles only: nothing needs to be cleared.
    inputs = np.empty(16 * ROWS * channels, image.dtype)
    outputs = np.empty(16 * ROWS * filters, image.dtype)
    for a in range(first, last, TILES):
        b = min(last, a + TILES)
        split(image, a, b, (height, width, channels), inputs, narrow)
        spread(of_out, a, b, (height, width, filters), outputs, narrow)
        for place in range(16):
            accumulate(inputs, outputs, sums, place, b - a, channels, filters, wide)


@inner
def multiply(V, U, M, place, tiles, channels, filters, wide):
    """M = V U at one place: 6 tiles by 2 registers of filters at a time."""
    size = count(wide)
    blocks = filters // size
    for t in range(0, tiles, 6):  # the last may go beyond `tiles`, into rows that nobody reads
        a = (place * ROWS + t) * channels
        for block in range(blocks):
            first = (place * blocks + block) * channels
            # 6 sums of 2 registers, u and a number: 15 of the 16 registers that AVX2 has.
            m0 = m1 = m2 = m3 = m4 = m5 = filled(V, 0, wide)
            for c in range(channels):
                u = load(U, first + c, wide)
                m0 += item(V, a + c) * u
                m1 += item(V, a + channels + c) * u
                m2 += item(V, a + 2 * channels + c) * u
                m3 += item(V, a + 3 * channels + c) * u
                m4 += item(V, a + 4 * channels + c) * u
                m5 += item(V, a + 5 * channels + c) * u
            at = (place * ROWS + t) * blocks + block
            store(M, at, m0, wide)
            store(M, at + blocks, m1, wide)
            store(M, at + 2 * blocks, m2, wide)
            store(M, at + 3 * blocks, m3, wide)
            store(M, at + 4 * blocks, m4, wide)
            store(M, at + 5 * blocks, m5, wide)


@inner
def accumulate(V, S, sums, place, tiles, channels, filters, wide):
    """sums += V'S at one place: 4 channels by 2 registers of filters at a time."""
    blocks = filters // count(wide)
    for c in range(0, channels, 4):
        for block in range(blocks):
            m0 = m1 = m2 = m3 = filled(V, 0, wide)
            for t in range(tiles):
                a = (place * ROWS + t) * channels + c
                s = load(S, (place * ROWS + t) * blocks + block, wide)
                m0 += item(V, a) * s
                m1 += item(V, a + 1) * s
                m2 += item(V, a + 2) * s
                m3 += item(V, a + 3) * s
            # Summed in registers over all tiles of the group, and added to memory once.
            at = (place * channels + c) * blocks + block
            store(sums, at, load(sums, at, wide) + m0, wide)
            store(sums, at + blocks, load(sums, at + blocks, wide) + m1, wide)
            store(sums, at + 2 * blocks, load(sums, at + 2 * blocks, wide) + m2, wide)
            store(sums, at + 3 * blocks, load(sums, at + 3 * blocks, wide) + m3, wide)


@inner
def split(image, first, last, shape, V, lanes):
    """V = B'd B of the tiles from `first` to `last`; around an image are zeros."""
    parts = shape[2] // count(lanes)
    for tile in range(first, last):
        i, r, s = _place_of(tile, shape)
        for k in range(parts):
            # Separable: lines times B first, then B' times the columns. The tile begins one pixel
            # before its output, as a 3×3 filter reaches.
            a = _input_line(image, i, r - 1, s - 1, k, shape, lanes)
            b = _input_line(image, i, r, s - 1, k, shape, lanes)
            c = _input_line(image, i, r + 1, s - 1, k, shape, lanes)
            d = _input_line(image, i, r + 2, s - 1, k, shape, lanes)
            at = (tile - first) * parts + k
            _store_column(V, at, 0, parts, _before(a[0], b[0], c[0], d[0]), lanes)
            _store_column(V, at, 1, parts, _before(a[1], b[1], c[1], d[1]), lanes)
            _store_column(V, at, 2, parts, _before(a[2], b[2], c[2], d[2]), lanes)
            _store_column(V, at, 3, parts, _before(a[3], b[3], c[3], d[3]), lanes)


@inner
def spread(image, first, last, shape, V, lanes):
    """V = A z A' of the 2×2 pixels z of the tiles from `first` to `last`."""
    parts = shape[2] // count(lanes)
    for tile in range(first, last):
        i, r, s = _place_of(tile, shape)
        for k in range(parts):
            a = _output_line(image, i, r, s, k, shape, lanes)
            b = _output_line(image, i, r + 1, s, k, shape, lanes)
            at = (tile - first) * parts + k
            _store_column(V, at, 0, parts, _apart(a[0], b[0]), lanes)
            _store_column(V, at, 1, parts, _apart(a[1], b[1]), lanes)
            _store_column(V, at, 2, parts, _apart(a[2], b[2]), lanes)
            _store_column(V, at, 3, parts, _apart(a[3], b[3]), lanes)


@inner
def join(V, first, last, shape, image, lanes):
    """A'v A into the 2×2 pixels of the tiles from `first` to `last`."""
    parts = shape[2] // count(lanes)
    for tile in range(first, last):
        i, r, s = _place_of(tile, shape)
        for k in range(parts):
            at = (tile - first) * parts + k
            a, b = _joined_column(V, at, 0, parts, lanes)
            c, d = _joined_column(V, at, 1, parts, lanes)
            e, f = _joined_column(V, at, 2, parts, lanes)
            g, h = _joined_column(V, at, 3, parts, lanes)
            upper, lower = _after(a, c, e, g), _after(b, d, f, h)
            _set_pixel(image, i, r, s, k, shape, upper[0], lanes)
            _set_pixel(image, i, r, s + 1, k, shape, upper[1], lanes)
            _set_pixel(image, i, r + 1, s, k, shape, lower[0], lanes)
            _set_pixel(image, i, r + 1, s + 1, k, shape, lower[1], lanes)


@inner
def _before(a, b, c, d):
    """B' times four."""
    return a - c, b + c, c - b, b - d


@inner
def _after(a, b, c, d):
    """A' times four."""
    return a + b + c, b - c - d


@inner
def _apart(a, b):
    """A times two."""
    return a, a + b, a - b, -1 * b


@inner
def _input_line(image, i, r, s, k, shape, lanes):
    """Four pixels in a line from (r, s) on, times B."""
    p = _pixel(image, i, r, s, k, shape, lanes)
    q = _pixel(image, i, r, s + 1, k, shape, lanes)
    t = _pixel(image, i, r, s + 2, k, shape, lanes)
    return _before(p, q, t, _pixel(image, i, r, s + 3, k, shape, lanes))


@inner
def _output_line(image, i, r, s, k, shape, lanes):
    """Two pixels in a line from (r, s) on, times A'."""
    p, q = _pixel(image, i, r, s, k, shape, lanes), _pixel(image, i, r, s + 1, k, shape, lanes)
    return _apart(p, q)


@inner
def _joined_column(V, at, column, parts, lanes):
    """A' times a column of a tile."""
    at, line = at + column * ROWS * parts, 4 * ROWS * parts
    a, b = load(V, at, lanes), load(V, at + line, lanes)
    return _after(a, b, load(V, at + 2 * line, lanes), load(V, at + 3 * line, lanes))


@inner
def _store_column(V, at, column, parts, numbers, lanes):
    at, line = at + column * ROWS * parts, 4 * ROWS * parts
    store(V, at, numbers[0], lanes)
    store(V, at + line, numbers[1], lanes)
    store(V, at + 2 * line, numbers[2], lanes)
    store(V, at + 3 * line, numbers[3], lanes)


@inner
def _place_of(tile: int, shape: Any) -> tuple[int, int, int]:
    """The image of a tile, and the first of its 2×2 pixels."""
    down, across = (shape[0] + 1) // 2, (shape[1] + 1) // 2
    line = tile // across
    return line // down, 2 * (line % down), 2 * (tile % across)


@inner
def _pixel(image, i, r, s, k, shape, lanes):
    height, width, channels = shape
    # Zero padding, without a padded copy of the image.
    if r < 0 or r >= height or s < 0 or s >= width:
        return filled(image, 0, lanes)
    return load(image, ((i * height + r) * width + s) * (channels // count(lanes)) + k, lanes)


@inner
def _set_pixel(image, i, r, s, k, shape, value, lanes):
    height, width, channels = shape
    # An odd size ends within a tile: what lies beyond is not written.
    if r < height and s < width:
        store(image, ((i * height + r) * width + s) * (channels // count(lanes)) + k, value, lanes)
