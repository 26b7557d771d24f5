"""3×3 convolutions with 4 multiplications a pixel and pair of channels instead of 9.

An output z of 2×2 pixels depends on a tile d of 4×4 pixels of the input, and is, for each pair of
channels,

    z = A'[(G w G') ∘ (B'd B)]A

so that a convolution is 16 matrix products, one for each place of a tile: (tiles × channels) by
(channels × filters). They come between a pass that makes B'd B and one that makes z. Backwards,
the derivative by the input is a convolution with turned weights, and that by w is

    ∂w = G'[Σ over tiles of (B'd B) ∘ (A ∂z A')]G

In single precision that is as accurate as a sum over 9 places: all factors are ±1 and 1/2.

Images are (images, height, width, channels), flat; what stands at the places of some tiles is
(16, `ROWS`, channels), flat. `narrow` is one register of channels and `wide` two, by their types.

Reference: Lavin & Gray, "Fast algorithms for convolutional neural networks", CVPR 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bilevel.kernels.kernel import kernel
from bilevel.kernels.lanes import item, load, store, zeros
from bilevel.kernels.team import parallel, share

TILES = 48  # at a time, which stay in the cache: a multiple of 6
ROWS = TILES + 1  # not a power of two apart: places would share cache lines


@kernel
def convolve(
    image: Any, factors: Any, out: Any, shape: Any, narrow: Any, wide: Any, threads: int
) -> None:
    """out = w * image, where factors are G w G' as (16, filters/wide, channels, wide), flat.

    `shape` is images, height, width, channels, filters.
    """
    inputs = np.zeros((threads, 16 * ROWS * shape[3]), image.dtype)
    outputs = np.zeros((threads, 16 * ROWS * shape[4]), image.dtype)
    parallel(_convolve, (image, factors, out, shape, inputs, outputs, narrow, wide), threads)


@njit(nogil=True)
def _convolve(given: Any, me: int, size: int) -> None:
    image, factors, out, shape, inputs, outputs, narrow, wide = given
    n, height, width, channels, filters = shape
    first, last = share(_tiles(n, height, width), me, size)
    for a in range(first, last, TILES):
        b = min(last, a + TILES)
        split(image, a, b, (height, width, channels), inputs[me], narrow)
        for place in range(16):
            multiply(inputs[me], factors, outputs[me], place, b - a, channels, filters, wide)
        join(outputs[me], a, b, (height, width, filters), out, narrow)


@kernel
def correlate(
    image: Any, of_out: Any, sums: Any, shape: Any, narrow: Any, wide: Any, threads: int
) -> None:
    """sums[i] += Σ (B'd B) ∘ (A ∂z A') over the tiles of thread i, as (16, channels, filters)."""
    inputs = np.empty((threads, 16 * ROWS * shape[3]), image.dtype)
    outputs = np.empty((threads, 16 * ROWS * shape[4]), image.dtype)
    parallel(_correlate, (image, of_out, sums, shape, inputs, outputs, narrow, wide), threads)


@njit(nogil=True)
def _correlate(given: Any, me: int, size: int) -> None:
    image, of_out, sums, shape, inputs, outputs, narrow, wide = given
    n, height, width, channels, filters = shape
    first, last = share(_tiles(n, height, width), me, size)
    for a in range(first, last, TILES):
        b = min(last, a + TILES)
        split(image, a, b, (height, width, channels), inputs[me], narrow)
        spread(of_out, a, b, (height, width, filters), outputs[me], narrow)
        for place in range(16):
            accumulate(inputs[me], outputs[me], sums[me], place, b - a, channels, filters, wide)


@njit(nogil=True)
def multiply(
    V: Any, U: Any, M: Any, place: int, tiles: int, channels: int, filters: int, wide: Any
) -> None:
    """M = V U at one place: 6 tiles by 2 registers of filters at a time."""
    size = len(wide[0])
    blocks = filters // size
    for t in range(0, tiles, 6):  # the last may go beyond `tiles`, into rows that nobody reads
        a = (place * ROWS + t) * channels
        for block in range(blocks):
            first = (place * blocks + block) * channels
            m0 = m1 = m2 = m3 = m4 = m5 = zeros(V, wide)
            for c in range(channels):
                u = load(U, first + c, wide)
                m0 += item(V, a + c) * u
                m1 += item(V, a + channels + c) * u
                m2 += item(V, a + 2 * channels + c) * u
                m3 += item(V, a + 3 * channels + c) * u
                m4 += item(V, a + 4 * channels + c) * u
                m5 += item(V, a + 5 * channels + c) * u
            at = (place * ROWS + t) * blocks + block
            store(M, at, m0)
            store(M, at + blocks, m1)
            store(M, at + 2 * blocks, m2)
            store(M, at + 3 * blocks, m3)
            store(M, at + 4 * blocks, m4)
            store(M, at + 5 * blocks, m5)


@njit(nogil=True)
def accumulate(
    V: Any, S: Any, sums: Any, place: int, tiles: int, channels: int, filters: int, wide: Any
) -> None:
    """sums += V'S at one place: 4 channels by 2 registers of filters at a time."""
    blocks = filters // len(wide[0])
    for c in range(0, channels, 4):
        for block in range(blocks):
            m0 = m1 = m2 = m3 = zeros(V, wide)
            for t in range(tiles):
                a = (place * ROWS + t) * channels + c
                s = load(S, (place * ROWS + t) * blocks + block, wide)
                m0 += item(V, a) * s
                m1 += item(V, a + 1) * s
                m2 += item(V, a + 2) * s
                m3 += item(V, a + 3) * s
            at = (place * channels + c) * blocks + block
            store(sums, at, load(sums, at, wide) + m0)
            store(sums, at + blocks, load(sums, at + blocks, wide) + m1)
            store(sums, at + 2 * blocks, load(sums, at + 2 * blocks, wide) + m2)
            store(sums, at + 3 * blocks, load(sums, at + 3 * blocks, wide) + m3)


@njit(nogil=True)
def split(image: Any, first: int, last: int, shape: Any, V: Any, lanes: Any) -> None:
    """V = B'd B of the tiles from `first` to `last`; around an image are zeros."""
    parts = shape[2] // len(lanes[0])
    for tile in range(first, last):
        i, r, s = _place_of(tile, shape)
        for k in range(parts):
            a = _input_line(image, i, r - 1, s - 1, k, shape, lanes)
            b = _input_line(image, i, r, s - 1, k, shape, lanes)
            c = _input_line(image, i, r + 1, s - 1, k, shape, lanes)
            d = _input_line(image, i, r + 2, s - 1, k, shape, lanes)
            at = (tile - first) * parts + k
            _store_line(V, at, parts, a[0] - c[0], a[1] - c[1], a[2] - c[2], a[3] - c[3])
            at += 4 * ROWS * parts
            _store_line(V, at, parts, b[0] + c[0], b[1] + c[1], b[2] + c[2], b[3] + c[3])
            at += 4 * ROWS * parts
            _store_line(V, at, parts, c[0] - b[0], c[1] - b[1], c[2] - b[2], c[3] - b[3])
            at += 4 * ROWS * parts
            _store_line(V, at, parts, b[0] - d[0], b[1] - d[1], b[2] - d[2], b[3] - d[3])


@njit(nogil=True)
def spread(image: Any, first: int, last: int, shape: Any, V: Any, lanes: Any) -> None:
    """V = A z A' of the 2×2 pixels z of the tiles from `first` to `last`."""
    parts = shape[2] // len(lanes[0])
    nothing = zeros(image, lanes)
    for tile in range(first, last):
        i, r, s = _place_of(tile, shape)
        for k in range(parts):
            a = _output_line(image, i, r, s, k, shape, lanes)
            b = _output_line(image, i, r + 1, s, k, shape, lanes)
            at = (tile - first) * parts + k
            _store_line(V, at, parts, a[0], a[1], a[2], a[3])
            at += 4 * ROWS * parts
            _store_line(V, at, parts, a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])
            at += 4 * ROWS * parts
            _store_line(V, at, parts, a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3])
            at += 4 * ROWS * parts
            c = nothing - b[0], nothing - b[1], nothing - b[2], nothing - b[3]
            _store_line(V, at, parts, c[0], c[1], c[2], c[3])


@njit(nogil=True)
def join(V: Any, first: int, last: int, shape: Any, image: Any, lanes: Any) -> None:
    """A'v A into the 2×2 pixels of the tiles from `first` to `last`."""
    parts = shape[2] // len(lanes[0])
    for tile in range(first, last):
        i, r, s = _place_of(tile, shape)
        for k in range(parts):
            at = (tile - first) * parts + k
            a, b = _joined_column(V, at, parts, lanes)
            c, d = _joined_column(V, at + ROWS * parts, parts, lanes)
            e, f = _joined_column(V, at + 2 * ROWS * parts, parts, lanes)
            g, h = _joined_column(V, at + 3 * ROWS * parts, parts, lanes)
            _set_pixel(image, i, r, s, k, shape, a + c + e, lanes)
            _set_pixel(image, i, r, s + 1, k, shape, c - e - g, lanes)
            _set_pixel(image, i, r + 1, s, k, shape, b + d + f, lanes)
            _set_pixel(image, i, r + 1, s + 1, k, shape, d - f - h, lanes)


@njit(nogil=True)
def _input_line(image: Any, i: int, r: int, s: int, k: int, shape: Any, lanes: Any) -> Any:
    """Four pixels in a line from (r, s) on, times B."""
    p = _pixel(image, i, r, s, k, shape, lanes)
    q = _pixel(image, i, r, s + 1, k, shape, lanes)
    t = _pixel(image, i, r, s + 2, k, shape, lanes)
    u = _pixel(image, i, r, s + 3, k, shape, lanes)
    return p - t, q + t, t - q, q - u


@njit(nogil=True)
def _output_line(image: Any, i: int, r: int, s: int, k: int, shape: Any, lanes: Any) -> Any:
    """Two pixels in a line from (r, s) on, times A'."""
    p = _pixel(image, i, r, s, k, shape, lanes)
    q = _pixel(image, i, r, s + 1, k, shape, lanes)
    return p, p + q, p - q, zeros(image, lanes) - q


@njit(nogil=True)
def _joined_column(V: Any, at: int, parts: int, lanes: Any) -> Any:
    """A' times a column of a tile."""
    line = 4 * ROWS * parts
    a, b = load(V, at, lanes), load(V, at + line, lanes)
    c, d = load(V, at + 2 * line, lanes), load(V, at + 3 * line, lanes)
    return a + b + c, b - c - d


@njit(nogil=True)
def _store_line(V: Any, at: int, parts: int, a: Any, b: Any, c: Any, d: Any) -> None:
    store(V, at, a)
    store(V, at + ROWS * parts, b)
    store(V, at + 2 * ROWS * parts, c)
    store(V, at + 3 * ROWS * parts, d)


@njit(nogil=True)
def _tiles(n: int, height: int, width: int) -> Any:
    return n * ((height + 1) // 2) * ((width + 1) // 2)


@njit(nogil=True)
def _place_of(tile: int, shape: Any) -> tuple[int, int, int]:
    """The image of a tile, and the first of its 2×2 pixels."""
    down, across = (shape[0] + 1) // 2, (shape[1] + 1) // 2
    line = tile // across
    return line // down, 2 * (line % down), 2 * (tile % across)


@njit(nogil=True)
def _pixel(image: Any, i: int, r: int, s: int, k: int, shape: Any, lanes: Any) -> Any:
    height, width, channels = shape
    if r < 0 or r >= height or s < 0 or s >= width:
        return zeros(image, lanes)
    return load(image, ((i * height + r) * width + s) * (channels // len(lanes[0])) + k, lanes)


@njit(nogil=True)
def _set_pixel(
    image: Any, i: int, r: int, s: int, k: int, shape: Any, value: Any, lanes: Any
) -> None:
    height, width, channels = shape
    if r < height and s < width:
        store(image, ((i * height + r) * width + s) * (channels // len(lanes[0])) + k, value)
