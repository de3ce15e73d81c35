"""Loops over the rows of a node, written in vector instructions that LLVM translates for the current machine.

``CAPI_SIMD=0`` uses those of `capi.trees._kernels.plain` instead, which give the same bytes.

A row is a record: its codes in groups of eight *lanes*, then its outputs, its weight and its number. Compilers do not
recognise that the eight codes of a group can be compared at once, each with its own cut. The tests compare all loops with
the plain ones.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from capi._utils.compile import SIMD
from capi.trees._kernels import plain
from capi.trees._kernels.plain import LANES, N_SUMS

WORD, INDEX, FLOAT = ir.IntType(64), ir.IntType(32), ir.DoubleType()
WORDS, FLOATS, COUNTS = ir.VectorType(WORD, LANES), ir.VectorType(FLOAT, LANES), ir.VectorType(INDEX, LANES)


class _Writer:
    """Building blocks of the loops below."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def load(self, address: Any, kind: Any) -> Any:
        loaded = self.builder.load(self.builder.inttoptr(address, kind.as_pointer()))
        loaded.align = 8
        return loaded

    def store(self, value: Any, address: Any) -> None:
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer())).align = 8

    def variable(self, value: Any) -> Any:
        return cgutils.alloca_once_value(self.builder, value)

    def update(self, variable: Any, change: Callable[[Any], Any]) -> None:
        self.builder.store(change(self.builder.load(variable)), variable)

    def spread(self, value: Any, kind: Any) -> Any:
        """Return a vector with ``value`` in all lanes."""
        nothing = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(nothing, value, ir.Constant(INDEX, 0))
        return self.builder.shuffle_vector(one, nothing, ir.Constant(COUNTS, [0] * LANES))

    def number(self, value: int) -> Any:
        return ir.Constant(WORD, value)

    def sum_over(self, nothing: Any, first: Any, n: Any, size: Any, add: Callable[[Any, Any], Any]) -> Any:
        """Return the sum over n records.

        ``add`` takes the address of a record and the sum so far, which starts at ``nothing``, and returns the next sum.
        """
        builder = self.builder
        totals = [self.variable(nothing) for _ in range(N_SUMS)]

        def take(row: Any, total: Any) -> None:
            here = builder.add(first, builder.mul(row, size))
            self.update(total, lambda so_far: add(here, so_far))

        whole = builder.and_(n, self.number(-N_SUMS))
        with cgutils.for_range_slice(builder, self.number(0), whole, self.number(N_SUMS)) as (row, _):
            for k in range(N_SUMS):
                take(builder.add(row, self.number(k)), totals[k])
        with cgutils.for_range_slice(builder, whole, n, self.number(1)) as (row, _):
            take(row, totals[0])
        one, two, three, four = (builder.load(total) for total in totals)
        return builder.fadd(builder.fadd(one, two), builder.fadd(three, four))


def _extremes_of(bits: int) -> Any:
    """Return a function (records, n, size, low, high, y) for codes of ``bits`` bits.

    It writes the extremes of each lane of a group to eight 64-bit numbers at ``low`` and at ``high``, and returns the sum of
    the outputs. The codes start at the address ``records``, spaced ``size`` bytes apart; the outputs are ``y`` bytes after
    the codes.
    """
    group = ir.VectorType(ir.IntType(bits), LANES)

    @intrinsic  # type: ignore[untyped-decorator]  # numba has no types
    def extremes(typing: Any, records: Any, n: Any, size: Any, low: Any, high: Any, y: Any) -> Any:  # noqa: ARG001
        signature = types.float64(*[types.int64] * 6)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:  # noqa: ARG001
            records, n, size, low, high, y = arguments
            write = _Writer(builder)
            least = write.variable(ir.Constant(group, [2**bits - 1] * LANES))
            most = write.variable(ir.Constant(group, [0] * LANES))

            def add(here: Any, so_far: Any) -> Any:
                x = write.load(here, group)
                write.update(least, lambda now: builder.select(builder.icmp_unsigned("<", x, now), x, now))
                write.update(most, lambda now: builder.select(builder.icmp_unsigned(">", x, now), x, now))
                return builder.fadd(so_far, write.load(builder.add(here, y), FLOAT))

            total = write.sum_over(ir.Constant(FLOAT, 0.0), records, n, size, add)
            for variable, address in ((least, low), (most, high)):
                write.store(builder.zext(builder.load(variable), WORDS), address)
            return total

        return signature, generate

    return extremes


def _sums_of(bits: int) -> Any:
    """Return a function (records, n, size, y, cuts, sums, counts) for codes of ``bits`` bits.

    For each lane of a group it writes the sum of the outputs, which are ``y`` bytes after the codes, over the rows whose
    code is at most the lane's cut, and the number of those rows.
    """
    code = ir.IntType(bits)
    group = ir.VectorType(code, LANES)

    @intrinsic  # type: ignore[untyped-decorator]
    def sums(typing: Any, records: Any, n: Any, size: Any, y: Any, cuts: Any, out: Any, counts: Any) -> Any:  # noqa: ARG001
        signature = types.void(*[types.int64] * 7)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
            records, n, size, y, cuts, out, counts = arguments
            write = _Writer(builder)
            cut = builder.trunc(write.load(cuts, WORDS), group)
            nothing, one = ir.Constant(FLOATS, [0.0] * LANES), ir.Constant(COUNTS, [1] * LANES)
            count = write.variable(ir.Constant(COUNTS, [0] * LANES))

            def add(here: Any, so_far: Any) -> Any:
                below = builder.icmp_unsigned("<=", write.load(here, group), cut)
                value = write.spread(write.load(builder.add(here, y), FLOAT), FLOATS)
                write.update(count, lambda now: builder.select(below, builder.add(now, one), now))
                return builder.select(below, builder.fadd(so_far, value), so_far)

            write.store(write.sum_over(nothing, records, n, size, add), out)
            write.store(builder.zext(builder.load(count), WORDS), counts)
            return context.get_dummy_value()

        return signature, generate

    return sums


def _sum_of() -> Any:
    """Return a function (first, n, size): the sum of n floats, spaced ``size`` bytes apart from the address ``first``."""

    @intrinsic  # type: ignore[untyped-decorator]
    def sum_of(typing: Any, first: Any, n: Any, size: Any) -> Any:  # noqa: ARG001
        signature = types.float64(types.int64, types.int64, types.int64)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:  # noqa: ARG001
            first, n, size = arguments
            write = _Writer(builder)
            nothing = ir.Constant(FLOAT, 0.0)
            return write.sum_over(
                nothing, first, n, size, lambda here, so_far: builder.fadd(so_far, write.load(here, FLOAT))
            )

        return signature, generate

    return sum_of


def _count_of(comparison: str) -> Any:
    """Return a function (values, x) that counts which of the eight floats at ``values`` satisfy the comparison with ``x``."""

    @intrinsic  # type: ignore[untyped-decorator]
    def count(typing: Any, values: Any, x: Any) -> Any:  # noqa: ARG001
        signature = types.int64(types.int64, types.float64)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:  # noqa: ARG001
            values, x = arguments
            write = _Writer(builder)
            found = builder.fcmp_ordered(comparison, write.load(values, FLOATS), write.spread(x, FLOATS))
            return builder.zext(builder.ctpop(builder.bitcast(found, ir.IntType(LANES))), WORD)

        return signature, generate

    return count


_PAIR = ir.VectorType(WORD, 2)
_REST: list[list[Any]] = [[], [WORD], [_PAIR], [_PAIR, WORD]]  # pieces for moving up to three words


def _divide_of(bits: int, n_words: int | None) -> Any:
    """Return a function (source, n, size, offset, plus, cut, target) for codes of ``bits`` bits.

    It copies n records of ``size`` bytes to ``target``: those whose code, ``offset`` bytes after their start, is at most the
    cut go to the front, the others to the back. It returns how many went to the front. ``plus`` is added to the code; the
    largest code plus one overflows to zero. If the number of words in a record is known, copying needs no loop.
    """
    code = ir.IntType(bits)
    pieces = [_PAIR] if n_words is None else [ir.VectorType(WORD, 4)] * (n_words // 4) + _REST[n_words % 4]

    @intrinsic  # type: ignore[untyped-decorator]
    def divide(typing: Any, source: Any, n: Any, size: Any, offset: Any, plus: Any, cut: Any, target: Any) -> Any:  # noqa: ARG001
        signature = types.int64(*[types.int64] * 7)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:  # noqa: ARG001
            source, n, size, offset, plus, cut, target = arguments
            write = _Writer(builder)
            front = write.variable(target)
            back = write.variable(builder.add(target, builder.mul(builder.sub(n, write.number(1)), size)))
            row = write.variable(source)

            def copy(here: Any, place: Any) -> None:
                step = 0
                for piece in pieces:
                    moved = write.load(builder.add(here, write.number(step)), piece)
                    write.store(moved, builder.add(place, write.number(step)))
                    step += 8 * getattr(piece, "count", 1)

            with cgutils.for_range(builder, n):
                here = builder.load(row)
                found = builder.load(builder.inttoptr(builder.add(here, offset), code.as_pointer()))
                shifted = builder.add(found, builder.trunc(plus, code))
                is_left = builder.icmp_unsigned("<=", builder.zext(shifted, WORD), cut)
                place = builder.select(is_left, builder.load(front), builder.load(back))
                if n_words is None:
                    with cgutils.for_range(builder, builder.lshr(size, write.number(4))) as loop:
                        step = builder.shl(loop.index, write.number(4))
                        copy(builder.add(here, step), builder.add(place, step))
                    last = builder.sub(
                        size, write.number(8)
                    )  # needed for an odd number of words; otherwise it is copied twice
                    write.store(write.load(builder.add(here, last), WORD), builder.add(place, last))
                else:
                    copy(here, place)
                left = builder.zext(is_left, WORD)
                write.update(front, lambda at: builder.add(at, builder.and_(size, builder.neg(left))))
                write.update(back, lambda at: builder.sub(at, builder.and_(size, builder.sub(left, write.number(1)))))
                write.update(row, lambda at: builder.add(at, size))
            return builder.sdiv(builder.sub(builder.load(front), target), size)

        return signature, generate

    return divide


if SIMD:
    count_up_to, count_below = _count_of("<="), _count_of("<")
    extremes_of_16, extremes_of_32 = _extremes_of(16), _extremes_of(32)
    sums_of_16, sums_of_32 = _sums_of(16), _sums_of(32)
    sum_of = _sum_of()
    divide_3_of_16, divide_4_of_16, divide_6_of_16, divide_any_of_16 = (_divide_of(16, n) for n in (3, 4, 6, None))
    divide_5_of_32, divide_any_of_32 = (_divide_of(32, n) for n in (5, None))
else:
    count_up_to, count_below = plain.count_up_to, plain.count_below
    extremes_of_16, extremes_of_32 = plain.extremes_of_16, plain.extremes_of_32
    sums_of_16, sums_of_32 = plain.sums_of_16, plain.sums_of_32
    sum_of = plain.sum_of
    divide_3_of_16 = divide_4_of_16 = divide_6_of_16 = divide_any_of_16 = plain.divide_of_16
    divide_5_of_32 = divide_any_of_32 = plain.divide_of_32
