"""The exponential function of a row in registers, which LLVM has for numbers only."""

from __future__ import annotations

from math import log
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bilevel.kernels.registers import constant, each


@intrinsic
def exp(typing: Any, row: Any) -> Any:
    """e^z for z ≤ 0, to a few units in the last place; 2^-126 (2^-1022) at the least.

    e^z = 2^k e^r with an integer k and |r| ≤ log(2)/2; e^r by its Taylor series, 2^k by its bits.
    """
    single, piece = row.dtype == types.float32, row.piece
    bits, digits, bias, degree = (32, 23, 127, 7) if single else (64, 52, 1023, 13)
    # log(2) in two parts, the first with few enough bits that k times it is exact.
    high = 0.693359375 if single else 0.6931471803691238
    integers = ir.VectorType(ir.IntType(bits), row.size)

    def one(builder: ir.IRBuilder, z: ir.Value) -> ir.Value:
        def plus(a: Any, b: Any, c: Any) -> Any:
            """a b + c, never reordered as other sums may be: that would undo the rounding below."""
            return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))

        least = constant(piece, (1 - bias) * log(2))
        z = builder.select(builder.fcmp_ordered("<", z, least), least, z)
        # Adding 1.5·2^digits to a number rounds it, and leaves it as an integer in the last bits.
        magic = constant(piece, 1.5 * 2.0**digits)
        shifted = plus(z, constant(piece, 1 / log(2)), magic)
        k = builder.fsub(shifted, magic)
        r = plus(k, constant(piece, high - log(2)), plus(k, constant(piece, -high), z))
        series = constant(piece, 1.0)
        for term in range(degree, 0, -1):
            scaled = builder.fmul(r, constant(piece, 1 / term))
            series = plus(scaled, series, constant(piece, 1.0))
        exponent = builder.shl(builder.bitcast(shifted, integers), constant(integers, digits))
        power = builder.add(exponent, constant(integers, bias << digits))
        return builder.fmul(series, builder.bitcast(power, piece))

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return each(builder, row, lambda z: one(builder, z), args[0])

    return row(row), generate
