"""A row of W in the processor's registers, for kernels compiled by numba.

A row of W holds a number per class. `load(W, j, classes)` takes row j as one value of type `Row`:
sums and products of such values are a few instructions for all classes. LLVM would widen a vector
of 20 numbers to 32 and keep it in memory, so a row is made of pieces of 32 bytes; or of 64, where
the processor has registers for them and they hold no more zeros.

How many classes there are must be known when a kernel is compiled: kernels are given `sizes`, made
by `close` or `padded`, whose type says it, and make `classes` of it. What stands behind the last
class is zero, and stays so in sums and products; after `exp`, `trimmed` makes it so again.

Sums may be reordered and multiply-adds fused, as matrix libraries do; NaN and infinity keep their
meaning, so that a diverged iterate is seen as one.

From numba this needs `types` and, from `numba.extending`, `intrinsic`, `lower_builtin`, `models`,
`register_model` and `type_callable`; and `make_array`, `cast` and `get_dummy_value` of
the context that it hands to every intrinsic. All of these are public and documented. The
instructions are written with `llvmlite.ir`, which is public, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

# Without "nnan" and "ninf", which would let the compiler assume that nothing diverges.
_FAST = ("reassoc", "nsz", "arcp", "contract")
_INDEX = ir.IntType(32)
_WIDE = get_host_cpu_features().get("avx512f", False)


def _bytes(count: int, itemsize: int) -> int:
    """Of a piece of a row of `count` numbers."""
    return 64 if _WIDE and -(-count * itemsize // 32) % 2 == 0 else 32


Sizes = tuple[tuple[int, ...], tuple[int, ...]]  # as many zeros as classes, and as a row is long


def close(count: int) -> Sizes:
    """Rows of `count` numbers that follow one another."""
    return (0,) * count, (0,) * count


def padded(count: int, itemsize: int) -> Sizes:
    """Rows that are filled up with zeros to whole pieces: no piece lies across two cache lines."""
    size = _bytes(count, itemsize) // itemsize
    return (0,) * count, (0,) * (-(-count // size) * size)


class Classes(types.Type):
    """How many numbers a row has, how long it is, and how far apart rows begin, if not as long.

    A value of it holds nothing.
    """

    def __init__(self, count: int, length: int, apart: int | None = None) -> None:
        self.count, self.length, self.apart = count, length, apart or length
        super().__init__(name=f"Classes({count}, {length}, {self.apart})")


register_model(Classes)(models.OpaqueModel)


@intrinsic
def of_sizes(typing: Any, sizes: Any) -> Any:
    """The first line of a kernel: functions are compiled much faster if no tuples are passed."""
    own = Classes(sizes[0].count, sizes[1].count)
    return own(sizes), lambda context, builder, sig, args: context.get_dummy_value()


@intrinsic
def closely(typing: Any, classes: Any) -> Any:
    """As many classes, in rows that follow one another."""
    own = Classes(classes.count, classes.count)
    return own(classes), lambda context, builder, sig, args: context.get_dummy_value()


@intrinsic
def piece_of(typing: Any, array: Any) -> Any:
    """Rows of one piece, which may begin at any number of an array: some features, not classes."""
    size = (64 if _WIDE else 32) * 8 // array.dtype.bitwidth
    own = Classes(size, size, 1)
    return own(array), lambda context, builder, sig, args: context.get_dummy_value()


@intrinsic
def count(typing: Any, classes: Any) -> Any:
    """How many there are."""
    number = ir.Constant(ir.IntType(types.intp.bitwidth), classes.count)
    return types.intp(classes), lambda context, builder, sig, args: number


class Row(types.Type):
    """`count` numbers of a floating-point type."""

    def __init__(self, dtype: types.Float, count: int) -> None:
        self.dtype, self.count, self.bytes = dtype, count, dtype.bitwidth // 8
        self.element = ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.size = _bytes(count, self.bytes) // self.bytes
        self.piece = ir.VectorType(self.element, self.size)
        self.whole = ir.ArrayType(self.piece, -(-count // self.size))
        super().__init__(name=f"Row({dtype}, {count})")


@register_model(Row)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, of: Row) -> None:
        super().__init__(manager, of, of.whole)


def _shuffled(builder: ir.IRBuilder, a: Any, b: Any, order: list[int]) -> ir.Value:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INDEX, len(order)), order))


def constant(like: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(like, [value] * like.count)


def _splat(builder: ir.IRBuilder, value: ir.Value, like: ir.VectorType) -> ir.Value:
    one = builder.insert_element(ir.Constant(like, ir.Undefined), value, ir.Constant(_INDEX, 0))
    return _shuffled(builder, one, one, [0] * like.count)


def each(builder: ir.IRBuilder, row: Row, function: Callable[..., Any], *values: Any) -> ir.Value:
    """A function of pieces, on each piece of these rows; a number is the same for all."""

    def piece(value: ir.Value, i: int) -> ir.Value:
        if isinstance(value.type, ir.ArrayType):
            return builder.extract_value(value, i)
        return _splat(builder, value, row.piece)

    # Undefined only until the loop below has set every piece.
    found = ir.Constant(row.whole, ir.Undefined)
    for i in range(row.whole.count):
        found = builder.insert_value(found, function(*(piece(value, i) for value in values)), i)
    return found


def _operation(operation: Callable[..., Any], instruction: str) -> None:
    """Rows with rows, and rows with a number in any order.

    `overload` would do, but it compiles a function for each pair of types: a second at first use.
    """

    @type_callable(operation)
    def typed(context: Any) -> Any:
        def result(a: Any, b: Any) -> Any:
            return next((kind for kind in (a, b) if isinstance(kind, Row)), None)

        return result

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        row, combine = sig.return_type, getattr(builder, instruction)
        values = (
            arg if isinstance(kind, Row) else context.cast(builder, arg, kind, row.dtype)
            for arg, kind in zip(args, sig.args, strict=True)
        )
        return each(builder, row, lambda a, b: combine(a, b, flags=_FAST), *values)

    for kinds in ((Row, Row), (Row, types.Number), (types.Number, Row)):
        lower_builtin(operation, *kinds)(lower)


_operation(operator.add, "fadd")
_operation(operator.iadd, "fadd")
_operation(operator.sub, "fsub")
_operation(operator.mul, "fmul")


def _addresses(
    context: Any, builder: Any, array: Any, args: Any, row: Row, classes: Classes
) -> Iterator[ir.Value]:
    """A pointer to each piece of a row: to as many numbers as the array holds of it."""
    data, at = args[:2]
    pointer = context.make_array(array)(context, builder, data).data
    start = builder.gep(pointer, [builder.mul(at, ir.Constant(at.type, classes.apart))])
    for first in range(0, row.count, row.size):
        # A close row ends within its last piece, and the next row begins there: only the numbers
        # that are the row's own are read or written.
        held = ir.VectorType(row.element, min(row.size, classes.length - first))
        yield builder.bitcast(builder.gep(start, [ir.Constant(_INDEX, first)]), held.as_pointer())


@intrinsic
def load(typing: Any, array: Any, at: Any, classes: Any) -> Any:
    """A row of a contiguous array."""
    row = Row(array.dtype, classes.count)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        found = ir.Constant(row.whole, ir.Undefined)
        places = _addresses(context, builder, array, args, row, classes)
        for i, place in enumerate(places):
            piece = builder.load(place)
            # A close row may begin at any number, so that no more can be promised.
            piece.align = row.bytes
            # Lanes that the array does not hold are taken from the zeros.
            order = [min(k, piece.type.count) for k in range(row.size)]
            piece = _shuffled(builder, piece, constant(piece.type, 0.0), order)
            found = builder.insert_value(found, piece, i)
        return found

    return row(array, types.intp, classes), generate


@intrinsic
def store(typing: Any, array: Any, at: Any, row: Any, classes: Any) -> Any:
    """Write a row of a contiguous array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        places = _addresses(context, builder, array, args, row, classes)
        for i, place in enumerate(places):
            piece, order = builder.extract_value(args[2], i), range(place.type.pointee.count)
            builder.store(_shuffled(builder, piece, piece, list(order)), place).align = row.bytes
        return context.get_dummy_value()

    return types.void(array, types.intp, row, classes), generate


@intrinsic
def item(typing: Any, array: Any, index: Any) -> Any:
    """A number of a contiguous array; without the check for an index from the end."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = context.make_array(array)(context, builder, args[0]).data
        return builder.load(builder.gep(pointer, [args[1]]))

    return array.dtype(array, types.intp), generate


@intrinsic
def filled(typing: Any, like: Any, number: Any, classes: Any) -> Any:
    """The same number for each class, of the type of the array `like`."""
    row = Row(like.dtype, classes.count)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return each(builder, row, lambda piece: piece, args[1])

    return row(like, row.dtype, classes), generate


@intrinsic
def holds_eight(typing: Any, like: Any, classes: Any) -> Any:
    """1 if the processor's registers hold eight rows and some more, otherwise 0."""
    needed = 8 * Row(like.dtype, classes.count).whole.count + 8
    number = ir.Constant(ir.IntType(types.intp.bitwidth), int(needed <= (32 if _WIDE else 16)))
    return types.intp(like, classes), lambda context, builder, sig, args: number


@intrinsic
def trimmed(typing: Any, row: Any, number: Any) -> Any:
    """The row, with `number` behind the last class."""
    used = row.count - (row.whole.count - 1) * row.size

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        last, order = row.whole.count - 1, [k if k < used else row.size for k in range(row.size)]
        rest = _splat(builder, args[1], row.piece)
        piece = _shuffled(builder, builder.extract_value(args[0], last), rest, order)
        return builder.insert_value(args[0], piece, last)

    return row(row, row.dtype), generate


def _reduction(combine: Callable[..., Any]) -> Any:
    """Of all numbers, also those behind the last class."""

    def typed(typing: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            found = builder.extract_value(args[0], 0)
            for i in range(1, row.whole.count):
                found = combine(builder, found, builder.extract_value(args[0], i))
            size = row.size
            # Halving takes log2 of the lanes; a loop over them would wait for each sum.
            while size > 1:  # the upper half onto the lower
                size //= 2
                upper = _shuffled(builder, found, found, [size + k for k in range(size)])
                lower = _shuffled(builder, found, found, list(range(size)))
                found = combine(builder, lower, upper)
            return builder.extract_element(found, ir.Constant(_INDEX, 0))

        return row.dtype(row), generate

    return intrinsic(typed)


def _greater(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    # A NaN in a is passed over, but e^(z − max) keeps it, and so does the sum.
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


total = _reduction(lambda builder, a, b: builder.fadd(a, b, flags=_FAST))
largest = _reduction(_greater)
