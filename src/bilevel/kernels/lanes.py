"""A row of W in the processor's registers, for kernels compiled by numba.

A row of W holds a number a class. `load(W, j, classes)` takes row j as one value of type
`Lanes`: sums and products of such values are a few instructions for all classes. In registers, a
row is made of pieces of 32 bytes, the last one filled up with what is never read.

How many classes there are must be known when a kernel is compiled: `classes`, made by
`close` or `padded`, says it by its type.

Sums may be reordered and multiply-adds fused, as matrix libraries do; NaN and infinity keep their
meaning, so that a diverged iterate is seen as one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import log
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models, register_default
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic

_FAST = ("reassoc", "nsz", "arcp", "contract")
_INDEX = ir.IntType(32)
_BYTES = 32  # of a piece

Classes = tuple[tuple[int, ...], tuple[int, ...]]  # as many zeros as classes, and as a row is long


def close(count: int) -> Classes:
    """Rows of `count` numbers that follow one another."""
    return (0,) * count, (0,) * count


def padded(count: int, itemsize: int) -> Classes:
    """Rows that are filled up with zeros to whole pieces: no piece lies across two cache lines."""
    size = _BYTES // itemsize
    return (0,) * count, (0,) * (-(-count // size) * size)


class Lanes(types.Type):
    """`count` numbers of a floating-point type, in arrays whose rows have `stride`."""

    def __init__(self, dtype: types.Float, count: int, stride: int) -> None:
        self.dtype, self.count, self.stride = dtype, count, stride
        self.bytes = dtype.bitwidth // 8
        self.element = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.piece = ir.VectorType(self.element, _BYTES // self.bytes)
        starts = range(0, count, self.piece.count)
        self.filled = [min(self.piece.count, count - start) for start in starts]
        self.stored = [min(self.piece.count, stride - start) for start in starts]
        self.whole = ir.ArrayType(self.piece, len(self.filled))
        super().__init__(name=f"Lanes({dtype}, {count}, {stride})")

    @staticmethod
    def of(array: Any, classes: Any) -> Lanes:
        return Lanes(array.dtype, classes[0].count, classes[1].count)


@register_default(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, of: Lanes) -> None:
        super().__init__(manager, of, of.whole)


def _pieces(builder: ir.IRBuilder, value: ir.Value) -> list[ir.Value]:
    return [builder.extract_value(value, i) for i in range(value.type.count)]


def _joined(builder: ir.IRBuilder, pieces: list[ir.Value]) -> ir.Value:
    whole = ir.Constant(ir.ArrayType(pieces[0].type, len(pieces)), ir.Undefined)
    for i, piece in enumerate(pieces):
        whole = builder.insert_value(whole, piece, i)
    return whole


def _shuffled(builder: ir.IRBuilder, a: Any, b: Any, order: list[int]) -> ir.Value:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INDEX, len(order)), order))


def _splat(builder: ir.IRBuilder, value: ir.Value, like: ir.VectorType) -> ir.Value:
    one = builder.insert_element(ir.Constant(like, ir.Undefined), value, ir.Constant(_INDEX, 0))
    return _shuffled(builder, one, one, [0] * like.count)


def _constant(like: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(like, [value] * like.count)


def _arithmetic(operation: Callable[..., Any], instruction: str) -> None:
    """Lanes with lanes, and lanes with a number in any order."""

    @infer_global(operation)
    class Template(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            lanes = [arg for arg in args if isinstance(arg, Lanes)]
            if not lanes:
                return None
            fitting = (arg if isinstance(arg, Lanes) else lanes[0].dtype for arg in args)
            return signature(lanes[0], *fitting)

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        lanes = sig.return_type

        def pieces(arg: Any, kind: Any) -> list[ir.Value]:
            if isinstance(kind, Lanes):
                return _pieces(builder, arg)
            return [_splat(builder, arg, lanes.piece)] * len(lanes.filled)

        combine = getattr(builder, instruction)
        both = zip(*map(pieces, args, sig.args), strict=True)
        return _joined(builder, [combine(*pair, flags=_FAST) for pair in both])

    lower_builtin(operation, Lanes, Lanes)(lower)
    lower_builtin(operation, Lanes, types.Float)(lower)
    lower_builtin(operation, types.Float, Lanes)(lower)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.iadd, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")


def _addresses(context: Any, builder: Any, array: Any, data: Any, row: Any, lanes: Lanes) -> Any:
    """Of each piece of a row, as a pointer to as many numbers as it holds there."""
    pointer = context.make_array(array)(context, builder, data).data
    start = builder.gep(pointer, [builder.mul(row, ir.Constant(row.type, lanes.stride))])
    for i, stored in enumerate(lanes.stored):
        address = builder.gep(start, [ir.Constant(_INDEX, i * lanes.piece.count)])
        yield builder.bitcast(address, ir.VectorType(lanes.element, stored).as_pointer())


@intrinsic(prefer_literal=True)
def load(typing: Any, array: Any, row: Any, classes: Any) -> Any:
    """A row of a contiguous array."""
    lanes = Lanes.of(array, classes)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pieces = []
        for address in _addresses(context, builder, array, args[0], args[1], lanes):
            found = builder.load(address)
            found.align = lanes.bytes
            order = [min(i, found.type.count) for i in range(lanes.piece.count)]
            anything = ir.Constant(found.type, ir.Undefined)
            pieces.append(_shuffled(builder, found, anything, order))
        return _joined(builder, pieces)

    return lanes(array, types.intp, classes), generate


@intrinsic(prefer_literal=True)
def item(typing: Any, array: Any, index: Any) -> Any:
    """A number of a contiguous array; without the check for an index from the end."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = context.make_array(array)(context, builder, args[0]).data
        return builder.load(builder.gep(pointer, [args[1]]))

    return array.dtype(array, types.intp), generate


@intrinsic(prefer_literal=True)
def store(typing: Any, array: Any, row: Any, value: Any) -> Any:
    """Write a row of a contiguous array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        addresses = _addresses(context, builder, array, args[0], args[1], value)
        for piece, address in zip(_pieces(builder, args[2]), addresses, strict=True):
            order = list(range(address.type.pointee.count))
            builder.store(_shuffled(builder, piece, piece, order), address).align = value.bytes
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


@intrinsic(prefer_literal=True)
def zeros(typing: Any, array: Any, classes: Any) -> Any:
    """A row of zeros of the array's type."""
    lanes = Lanes.of(array, classes)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _joined(builder, [_constant(lanes.piece, 0.0)] * len(lanes.filled))

    return lanes(array, classes), generate


@intrinsic(prefer_literal=True)
def one_hot(typing: Any, like: Any, label: Any) -> Any:
    """One at `label`, else zero."""
    size = like.piece.count
    numbers = ir.VectorType(ir.IntType(8 * like.bytes), size)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        label = builder.trunc(args[1], numbers.element) if like.bytes == 4 else args[1]
        wanted, pieces = _splat(builder, label, numbers), []
        for i in range(len(like.filled)):
            there = ir.Constant(numbers, list(range(i * size, (i + 1) * size)))
            found = builder.icmp_signed("==", there, wanted)
            ones, none = _constant(like.piece, 1.0), _constant(like.piece, 0.0)
            pieces.append(builder.select(found, ones, none))
        return _joined(builder, pieces)

    return like(like, types.int64), generate


def _trimmed(builder: ir.IRBuilder, value: ir.Value, lanes: Lanes, fill: float) -> list[ir.Value]:
    """The pieces, with `fill` behind the last number."""
    pieces, size = _pieces(builder, value), lanes.piece.count
    order = [i if i < lanes.filled[-1] else size for i in range(size)]
    pieces[-1] = _shuffled(builder, pieces[-1], _constant(lanes.piece, fill), order)
    return pieces


@intrinsic(prefer_literal=True)
def laid_out(typing: Any, lanes: Any, classes: Any) -> Any:
    """The same numbers, to be stored in rows as `classes` lays them out, zeros behind them."""
    other = Lanes(lanes.dtype, lanes.count, classes[1].count)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _joined(builder, _trimmed(builder, args[0], lanes, 0.0))

    return other(lanes, classes), generate


def _reduction(combine: Callable[..., Any], neutral: float) -> Any:
    def typed(typing: Any, lanes: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pieces, size = _trimmed(builder, args[0], lanes, neutral), lanes.piece.count
            found = pieces[0]
            for piece in pieces[1:]:
                found = combine(builder, found, piece)
            while size > 1:  # the upper half onto the lower
                size //= 2
                upper = _shuffled(builder, found, found, [size + i for i in range(size)])
                lower = _shuffled(builder, found, found, list(range(size)))
                found = combine(builder, lower, upper)
            return builder.extract_element(found, ir.Constant(_INDEX, 0))

        return lanes.dtype(lanes), generate

    return intrinsic(prefer_literal=True)(typed)


def _greater(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


total = _reduction(lambda builder, a, b: builder.fadd(a, b, flags=_FAST), 0.0)
largest = _reduction(_greater, float("-inf"))


@intrinsic(prefer_literal=True)
def exp(typing: Any, lanes: Any) -> Any:
    """e^z for z ≤ 0, to a few units in the last place; 2^-126 (2^-1022) at the least.

    e^z = 2^k e^r with an integer k and |r| ≤ log(2)/2; e^r by its Taylor series, 2^k by its bits.
    """
    single = lanes.dtype == types.float32
    bits, digits, bias, degree = (32, 23, 127, 7) if single else (64, 52, 1023, 13)
    # log(2) in two parts, the first with few enough bits that k times it is exact.
    high = 0.693359375 if single else 0.6931471803691238
    low = log(2) - high
    piece, integers = lanes.piece, ir.VectorType(ir.IntType(bits), lanes.piece.count)

    def one(builder: ir.IRBuilder, z: ir.Value) -> ir.Value:
        def plus(a: Any, b: Any, c: Any) -> Any:
            """a b + c."""
            return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))

        least = _constant(piece, (1 - bias) * log(2))
        z = builder.select(builder.fcmp_ordered("<", z, least), least, z)
        # Adding 1.5·2^digits to a number rounds it, and leaves it as an integer in the last bits.
        magic = _constant(piece, 1.5 * 2.0**digits)
        shifted = plus(z, _constant(piece, 1 / log(2)), magic)
        k = builder.fsub(shifted, magic)
        r = plus(k, _constant(piece, -low), plus(k, _constant(piece, -high), z))
        series = _constant(piece, 1.0)
        for term in range(degree, 0, -1):
            scaled = builder.fmul(r, _constant(piece, 1 / term))
            series = plus(scaled, series, _constant(piece, 1.0))
        exponent = builder.shl(builder.bitcast(shifted, integers), _constant(integers, digits))
        power = builder.add(exponent, _constant(integers, bias << digits))
        return builder.fmul(series, builder.bitcast(power, piece))

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _joined(builder, [one(builder, z) for z in _pieces(builder, args[0])])

    return lanes(lanes), generate
