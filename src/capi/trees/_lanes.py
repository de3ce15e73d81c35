"""Smallest and largest codes of a stretch of words, eight words at a time.

Compilers do not see that the codes in a word can be compared where they are, so that this one loop is spelled out
in vector instructions, which LLVM translates for whatever machine it is on.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WORD, INDEX = ir.IntType(64), ir.IntType(32)
AT_ONCE = 8  # words


def _extremes_of(bits: int) -> Any:
    """Return a function (words, n, low, high), all but n addresses, for codes of ``bits`` bits.

    It writes the extremes of the 64 // bits codes in each of n words to as many 64-bit numbers at ``low`` and ``high``.
    """
    per_word = 64 // bits
    code = ir.IntType(bits)
    one, many, out = (
        ir.VectorType(code, per_word),
        ir.VectorType(code, per_word * AT_ONCE),
        ir.VectorType(WORD, per_word),
    )

    @intrinsic  # type: ignore[untyped-decorator]  # numba has no types
    def extremes(typing: Any, words: Any, n: Any, low: Any, high: Any) -> Any:  # noqa: ARG001  the signature says it
        signature = types.void(types.uintp, types.int64, types.uintp, types.uintp)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
            words, n, low, high = arguments
            three = ir.Constant(WORD, 3)

            def smaller(x: Any, y: Any) -> Any:
                return builder.select(builder.icmp_unsigned("<", x, y), x, y)

            def larger(x: Any, y: Any) -> Any:
                return builder.select(builder.icmp_unsigned(">", x, y), x, y)

            def scan(kind: Any, first: Any, stop: Any, step: int, least: Any, most: Any) -> tuple[Any, Any]:
                """Return the extremes, lane by lane, of the words from ``first`` to ``stop``."""
                low_so_far, high_so_far = (
                    cgutils.alloca_once_value(builder, least),
                    cgutils.alloca_once_value(builder, most),
                )
                with cgutils.for_range_slice(builder, first, stop, ir.Constant(WORD, step)) as (i, _):
                    address = builder.add(words, builder.shl(i, three))
                    x = builder.load(builder.inttoptr(address, kind.as_pointer()))
                    x.align = 8
                    builder.store(smaller(x, builder.load(low_so_far)), low_so_far)
                    builder.store(larger(x, builder.load(high_so_far)), high_so_far)
                return builder.load(low_so_far), builder.load(high_so_far)

            def folded(x: Any, better: Callable[[Any, Any], Any]) -> Any:
                """Return the extremes of one word's codes: halves are compared until one word is left."""
                width = per_word * AT_ONCE
                while width > per_word:
                    width //= 2
                    halves = [
                        builder.shuffle_vector(
                            x, ir.Constant(x.type, ir.Undefined), ir.Constant(ir.VectorType(INDEX, width), list(part))
                        )
                        for part in (range(width), range(width, 2 * width))
                    ]
                    x = better(*halves)
                return x

            most_codes = ir.Constant(many, [2**bits - 1] * many.count)
            whole = builder.and_(n, ir.Constant(WORD, -AT_ONCE))
            least, most = scan(
                many, ir.Constant(WORD, 0), whole, AT_ONCE, most_codes, ir.Constant(many, [0] * many.count)
            )
            least, most = scan(one, whole, n, 1, folded(least, smaller), folded(most, larger))
            for x, address in ((least, low), (most, high)):
                stored = builder.store(builder.zext(x, out), builder.inttoptr(address, out.as_pointer()))
                stored.align = 8
            return context.get_dummy_value()

        return signature, generate

    return extremes


extremes_of_four = _extremes_of(16)
extremes_of_two = _extremes_of(32)
