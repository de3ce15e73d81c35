"""Kernel that moves many states down a tree together, in instructions that LLVM translates for the current machine.

A step waits for memory twice: for the node and for the state's code. While one state waits, others step. If the machine can
gather eight words from eight addresses at once, eight times eight states are processed together, otherwise eight. Compilers
do not recognise that the states are independent. ``CAPI_SIMD=0`` uses the walk of `capi.trees._kernels.plain` instead.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from capi._utils.compile import SIMD
from capi.trees._kernels import plain
from capi.trees._kernels.plain import CHILD_SHIFT, CUT_SHIFT, FEATURE_SHIFT, FEATURES, GROUPS, MISSING

STEPS = 4  # between two checks whether all have arrived

INDEX, WORD = ir.IntType(32), ir.IntType(64)


def walk_of(lanes: int) -> Any:
    """Return a function (nodes, codes, starts, at) that sends eight groups of ``lanes`` states (1 or 8) to their leaves.

    The root is at the address ``nodes``; `capi.trees._kernels.route` explains nodes and codes. State k's codes begin
    ``starts[k]`` codes after the address ``codes``, and the number of its last node goes to ``at[k]``; both are addresses of
    64-bit numbers.
    """

    def side_by_side(kind: Any) -> Any:
        return ir.VectorType(kind, lanes) if lanes > 1 else kind

    words, indices, flags = side_by_side(WORD), side_by_side(INDEX), side_by_side(ir.IntType(1))

    @intrinsic  # type: ignore[untyped-decorator]  # numba has no types
    def walk(typing: Any, nodes: Any, codes: Any, starts: Any, at: Any) -> Any:  # noqa: ARG001
        signature = types.void(types.uintp, types.uintp, types.uintp, types.uintp)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
            nodes, codes, starts, at = arguments

            def all_lanes(number: int) -> Any:
                return ir.Constant(words, [number] * lanes if lanes > 1 else number)

            def spread(value: Any) -> Any:
                if lanes == 1:
                    return value
                nothing = ir.Constant(words, ir.Undefined)
                one = builder.insert_element(nothing, value, ir.Constant(INDEX, 0))
                return builder.shuffle_vector(one, nothing, ir.Constant(indices, [0] * lanes))

            def gather(base: Any, offsets: Any, kind: Any) -> Any:
                """Return the elements of a kind that are ``offsets`` elements after ``base``, one per lane."""
                size, found = kind.width // 8, side_by_side(kind)
                places = builder.add(base, builder.mul(offsets, all_lanes(size)))
                pointers = builder.inttoptr(places, side_by_side(kind.as_pointer()))
                if lanes == 1:
                    return builder.load(pointers)
                function = ir.FunctionType(found, [pointers.type, INDEX, flags, found])
                name = f"llvm.masked.gather.v{lanes}i{kind.width}.v{lanes}p0"
                call = cgutils.get_or_insert_function(builder.module, function, name)
                everywhere, nothing = ir.Constant(flags, [1] * lanes), ir.Constant(found, ir.Undefined)
                return builder.call(call, [pointers, ir.Constant(INDEX, size), everywhere, nothing])

            def place(address: Any, group: int) -> Any:
                return builder.inttoptr(builder.add(address, ir.Constant(WORD, 8 * lanes * group)), words.as_pointer())

            def bits(words: Any, shift: int, mask: int) -> Any:
                return builder.and_(builder.lshr(words, all_lanes(shift)), all_lanes(mask))

            root, first_code = spread(nodes), spread(codes)
            first = builder.load(builder.inttoptr(nodes, WORD.as_pointer()))
            here = [cgutils.alloca_once_value(builder, spread(first)) for _ in range(GROUPS)]
            reached = [cgutils.alloca_once_value(builder, all_lanes(0)) for _ in range(GROUPS)]
            begin = [builder.load(place(starts, group), align=8) for group in range(GROUPS)]

            def step(group: int) -> None:
                node = builder.load(here[group])
                asked = builder.add(begin[group], bits(node, FEATURE_SHIFT, FEATURES))
                code = builder.zext(gather(first_code, asked, INDEX), words)
                shifted = bits(builder.add(code, bits(node, 0, 1)), 0, MISSING)
                right = builder.icmp_unsigned(">", shifted, bits(node, CUT_SHIFT, MISSING))
                child = builder.add(builder.lshr(node, all_lanes(CHILD_SHIFT)), builder.zext(right, words))
                builder.store(child, reached[group])
                builder.store(gather(root, child, WORD), here[group])

            on_the_way, arrived = builder.append_basic_block("on_the_way"), builder.append_basic_block("arrived")
            builder.branch(on_the_way)
            builder.position_at_end(on_the_way)
            for _ in range(STEPS):
                for group in range(GROUPS):
                    step(group)
            moving = all_lanes(0)
            for group in range(GROUPS):  # a leaf's left child is the leaf itself
                left = builder.lshr(builder.load(here[group]), all_lanes(CHILD_SHIFT))
                moving = builder.or_(moving, builder.xor(left, builder.load(reached[group])))
            some = builder.bitcast(builder.icmp_unsigned("!=", moving, all_lanes(0)), ir.IntType(lanes))
            builder.cbranch(builder.icmp_unsigned("!=", some, some.type(0)), on_the_way, arrived)
            builder.position_at_end(arrived)
            for group in range(GROUPS):
                builder.store(builder.load(reached[group]), place(at, group), align=8)
            return context.get_dummy_value()

        return signature, generate

    return walk


STATES_A_GROUP = 8 if SIMD and "+avx512f" in get_host_cpu_features() else 1
TOGETHER = GROUPS * STATES_A_GROUP
walk = walk_of(STATES_A_GROUP) if SIMD else plain.walk
