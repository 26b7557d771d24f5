"""The passes over pixels of `bilevel.models.heads.passes`, compiled by numba.

Arrays are (images, height, width, channels); what has one number per channel is (channels,). Each
kernel works on the images from `first` to `last`, so that threads can share the images: no number
depends on how they do. Every inner loop runs over the channels, has at most six arrays and writes
to one or two of them: LLVM turns such loops into vector instructions.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import njit

from bilevel.kernels.kernel import OPTIONS, compiling, kernel

Array = np.ndarray[Any, Any]

_compiled = functools.partial(kernel, fastmath={"contract"})
_inlined = njit(**{**OPTIONS, "fastmath": {"contract"}}, inline="always")


@_compiled
def pool(
    Z: Array, sign: Array, M: Array, means: Array, squares: Array, first: int, last: int
) -> None:
    """M: the greatest number of each 2×2 pixels of Z, or the least where `sign` is −1.

    Where `sign` is 0, the first. Also the mean of each image and the sum of its squared distances
    to that mean: summed around a pixel of the image and row by row, to lose no digits.
    """
    compiling()
    height, width, channels = Z.shape[1:]
    of_row, squares_of_row = np.empty(channels, Z.dtype), np.empty(channels, Z.dtype)
    # Rows are summed in the precision of the images, the rows' sums in double.
    of_image, squares_of_image = np.empty(channels), np.empty(channels)
    for i in range(first, last):
        # Distances to a pixel of the image are small: E z² − (E z)² would cancel where the mean is
        # large against the spread.
        middle = Z[i, height // 2, width // 2]
        of_image[:], squares_of_image[:] = 0, 0
        for r in range(height):
            of_row[:], squares_of_row[:] = 0, 0
            for s in range(width):
                z = Z[i, r, s]
                for c in range(channels):
                    distance = z[c] - middle[c]
                    of_row[c] += distance
                    squares_of_row[c] += distance * distance
            for c in range(channels):
                of_image[c] += of_row[c]
                squares_of_image[c] += squares_of_row[c]
            if r % 2 == 1:  # both rows are in the cache
                _pool_rows(Z[i, r - 1], Z[i, r], sign, M[i, r // 2])
        for c in range(channels):
            mean = of_image[c] / (height * width)
            means[i, c] = mean + middle[c]
            squares[i, c] = squares_of_image[c] - height * width * mean * mean


@_inlined
def _pool_rows(upper: Array, lower: Array, sign: Array, M: Array) -> None:
    for s in range(len(M)):
        a, b, c, d = upper[2 * s], upper[2 * s + 1], lower[2 * s], lower[2 * s + 1]
        m = M[s]
        for j in range(len(sign)):
            # Times −1 a minimum is a maximum: one loop without a branch for both.
            p, q, r, t = sign[j] * a[j], sign[j] * b[j], sign[j] * c[j], sign[j] * d[j]
            p, r = p if p > q else q, r if r > t else t
            p = p if p > r else r
            m[j] = sign[j] * p if sign[j] != 0 else a[j]


@_compiled
def activate(
    M: Array, mean: Array, k: Array, shift: Array, A: Array, first: int, last: int
) -> None:
    """A = relu(k(M − mean) + shift), NaN where that is NaN: divergence must be seen."""
    compiling()
    zero = M.dtype.type(0)
    for i in range(first, last):
        for r in range(M.shape[1]):
            for s in range(M.shape[2]):
                m, a = M[i, r, s], A[i, r, s]
                for c in range(M.shape[3]):
                    value = k[c] * (m[c] - mean[c]) + shift[c]
                    # Not max(value, 0), which would turn NaN into 0.
                    a[c] = zero if value <= zero else value


@_compiled
def mask(
    M: Array,
    mean: Array,
    k: Array,
    shift: Array,
    D: Array,
    of_shift: Array,
    of_scale: Array,
    first: int,
    last: int,
) -> None:
    """D becomes 0 where relu was; the sums of D and of D(M − mean) for each image."""
    compiling()
    zero, channels = M.dtype.type(0), M.shape[3]
    shift_of_row, scale_of_row = np.empty(channels, M.dtype), np.empty(channels, M.dtype)
    for i in range(first, last):
        of_shift[i], of_scale[i] = 0, 0
        for r in range(M.shape[1]):
            shift_of_row[:], scale_of_row[:] = 0, 0
            for s in range(M.shape[2]):
                m, d = M[i, r, s], D[i, r, s]
                for c in range(channels):
                    # The same expression as in `activate`: both must agree on where relu was zero.
                    value = k[c] * (m[c] - mean[c]) + shift[c]
                    d[c] = zero if value <= zero else d[c]
                # A loop of its own: with more arrays LLVM would not use vector instructions.
                for c in range(channels):
                    shift_of_row[c] += d[c]
                    scale_of_row[c] += d[c] * (m[c] - mean[c])
            for c in range(channels):
                of_shift[i, c] += shift_of_row[c]
                of_scale[i, c] += scale_of_row[c]


@_compiled
def spread(
    Z: Array,
    sign: Array,
    mean: Array,
    k: Array,
    p: Array,
    q: Array,
    D: Array,
    first: int,
    last: int,
) -> None:
    """Z becomes p + q(Z − mean), and kD more at the pixel of the four that `pool` took."""
    compiling()
    height, width, channels = Z.shape[1:]
    taken = np.empty(channels, Z.dtype)
    for i in range(first, last):
        for r in range(D.shape[1]):
            upper, lower = Z[i, 2 * r], Z[i, 2 * r + 1]
            for s in range(D.shape[2]):
                a, b, c, d = upper[2 * s], upper[2 * s + 1], lower[2 * s], lower[2 * s + 1]
                _find(a, b, c, d, sign, taken)
                _put(a, 0, taken, mean, k, p, q, D[i, r, s])
                _put(b, 1, taken, mean, k, p, q, D[i, r, s])
                _put(c, 2, taken, mean, k, p, q, D[i, r, s])
                _put(d, 3, taken, mean, k, p, q, D[i, r, s])
        for r in range(height):  # what an odd size leaves outside the squares
            for s in range(2 * D.shape[2] if r < 2 * D.shape[1] else 0, width):
                z = Z[i, r, s]
                for j in range(channels):
                    z[j] = p[j] + q[j] * (z[j] - mean[j])


@_inlined
def _find(a: Array, b: Array, c: Array, d: Array, sign: Array, taken: Array) -> None:
    """Which of the four is the greatest, the first of equal ones: 0, 1, 2 or 3."""
    # With sign 0 all four are equal: the first is taken, as in `pool`.
    number = taken.dtype.type
    for j in range(len(sign)):
        p, q, r, t = sign[j] * a[j], sign[j] * b[j], sign[j] * c[j], sign[j] * d[j]
        upper, lower = number(0) if p >= q else number(1), number(2) if r >= t else number(3)
        p, r = p if p >= q else q, r if r >= t else t
        taken[j] = upper if p >= r else lower


@_inlined
def _put(
    z: Array, t: int, taken: Array, mean: Array, k: Array, p: Array, q: Array, d: Array
) -> None:
    # All four pixels get the smooth part; only the one that was taken gets kD.
    own, zero = z.dtype.type(t), z.dtype.type(0)
    for c in range(len(z)):
        more = k[c] * d[c] if taken[c] == own else zero
        z[c] = p[c] + q[c] * (z[c] - mean[c]) + more
