"""Passes over the rows of a node for up to eight first cuts at once, written in vector instructions.

``CAPI_SIMD=0`` uses the plain twins below, which give the same numbers: compilers do not vectorise loops over eight lanes.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from capi._utils.compile import SIMD, apart
from capi.trees._kernels.memory import address_of
from capi.trees._optimal.records import LANES

WORD, INDEX, BYTE, FLOAT = ir.IntType(64), ir.IntType(32), ir.IntType(8), ir.DoubleType()
FLOATS = ir.VectorType(FLOAT, LANES)


@apart
def plain_differences(rows, place, losses, ends, n, masks, extremes):
    """Update the extreme sums of differences (4, lanes) below the cuts of one feature: least and largest, left and right."""
    for lane in range(LANES):
        left, right = 0.0, 0.0
        for i in range(n - 1):
            inside = masks[place[rows[i]], lane]
            left += inside * losses[i, 0]
            right += (1.0 - inside) * losses[i, 0]
            if ends[i]:
                extremes[0, lane], extremes[1, lane] = min(extremes[0, lane], left), max(extremes[1, lane], left)
                extremes[2, lane], extremes[3, lane] = min(extremes[2, lane], right), max(extremes[3, lane], right)


@apart
def plain_losses(rows, place, losses, ends, n, masks, totals, run, sums, best):
    """Lower the costs (2, lanes) of both sides, less those of the first action, by the cuts of one feature.

    ``losses`` (n, D) are those of the other actions, less that of the first. ``totals`` (D, lanes) are their sums left of each
    lane's cut; ``run`` (2, D) are zeros and the sums of all rows; ``sums`` (D, lanes) are overwritten.
    """
    n_others = losses.shape[1]
    for c in range(n_others):
        for lane in range(LANES):
            sums[c, lane] = 0.0
    for i in range(n - 1):
        for c in range(n_others):
            run[0, c] += losses[i, c]
        for lane in range(LANES):
            low, low_above, high, high_above = 0.0, 0.0, 0.0, 0.0
            for c in range(n_others):
                sums[c, lane] += masks[place[rows[i]], lane] * losses[i, c]
                left = sums[c, lane]
                above = totals[c, lane] - left
                low, low_above = min(low, left), min(low_above, above)
                high, high_above = min(high, run[0, c] - left), min(high_above, run[1, c] - run[0, c] - above)
            if ends[i]:
                best[0, lane] = min(best[0, lane], low + low_above)
                best[1, lane] = min(best[1, lane], high + high_above)


class _Writer:
    """Building blocks of the loops below."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def at(self, address: Any, place: Any, size: int) -> Any:
        return self.builder.add(address, self.builder.mul(place, ir.Constant(WORD, size)))

    def load(self, address: Any, kind: Any, align: int = 8) -> Any:
        loaded = self.builder.load(self.builder.inttoptr(address, kind.as_pointer()))
        loaded.align = align
        return loaded

    def store(self, value: Any, address: Any) -> None:
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer())).align = 8

    def spread(self, value: Any) -> Any:
        """Return a vector with ``value`` in all lanes."""
        nothing = ir.Constant(FLOATS, ir.Undefined)
        one = self.builder.insert_element(nothing, value, ir.Constant(INDEX, 0))
        return self.builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(INDEX, LANES), [0] * LANES))

    def extreme(self, comparison: str, one: Any, other: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered(comparison, one, other), one, other)

    def mask_of(self, rows: Any, place: Any, masks: Any, i: Any) -> Any:
        row = self.builder.sext(self.load(self.at(rows, i, 4), INDEX, 4), WORD)
        lane = self.builder.zext(self.load(self.builder.add(place, row), BYTE, 1), WORD)
        return self.load(self.at(masks, lane, 8 * LANES), FLOATS)

    def is_end(self, ends: Any, i: Any) -> Any:
        flag = self.load(self.builder.add(ends, i), BYTE, 1)
        return self.builder.icmp_unsigned("!=", flag, ir.Constant(BYTE, 0))


def _differences() -> Any:
    """Return the vector twin of `plain_differences`, on addresses."""

    @intrinsic
    def scan(typing: Any, rows: Any, place: Any, losses: Any, ends: Any, n: Any, masks: Any, extremes: Any) -> Any:  # noqa: ARG001
        signature = types.void(*[types.int64] * 7)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
            rows, place, losses, ends, n, masks, extremes = arguments
            write = _Writer(builder)
            run = cgutils.alloca_once_value(builder, ir.Constant(FLOAT, 0.0))
            sums = cgutils.alloca_once_value(builder, ir.Constant(FLOATS, [0.0] * LANES))
            places = [builder.add(extremes, ir.Constant(WORD, 8 * LANES * k)) for k in range(4)]
            found = [cgutils.alloca_once_value(builder, write.load(at, FLOATS)) for at in places]
            with cgutils.for_range(builder, builder.sub(n, ir.Constant(WORD, 1))) as loop:
                i = loop.index
                step = write.load(write.at(losses, i, 8), FLOAT)
                so_far = builder.fadd(builder.load(run), step)
                builder.store(so_far, run)
                moved = builder.fmul(write.mask_of(rows, place, masks, i), write.spread(step))
                left = builder.fadd(builder.load(sums), moved)
                builder.store(left, sums)
                with builder.if_then(write.is_end(ends, i)):
                    right = builder.fsub(write.spread(so_far), left)
                    for variable, comparison, value in zip(found, "<><>", (left, left, right, right), strict=True):
                        builder.store(write.extreme(comparison, value, builder.load(variable)), variable)
            for variable, at in zip(found, places, strict=True):
                write.store(builder.load(variable), at)
            return context.get_dummy_value()

        return signature, generate

    return scan


def _losses(unrolled: int = 0) -> Any:
    """Return the vector twin of `plain_losses`, on addresses; ``sums`` (D, lanes) are zeros.

    If the number of other actions is given, their sums stay in registers, which takes half the time.
    """

    @intrinsic
    def scan(  # numba passes one argument per name
        typing: Any, rows: Any, place: Any, losses: Any, ends: Any, n: Any, n_others: Any, masks: Any, totals: Any, run: Any, whole: Any, sums: Any, best: Any,  # noqa: ARG001
    ) -> Any:  # fmt: skip
        signature = types.void(*[types.int64] * 12)

        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
            rows, place, losses, ends, n, n_others, masks, totals, run, whole, sums, best = arguments
            write = _Writer(builder)
            zeros = ir.Constant(FLOATS, [0.0] * LANES)
            places = [best, builder.add(best, ir.Constant(WORD, 8 * LANES))]
            found = [cgutils.alloca_once_value(builder, write.load(at, FLOATS)) for at in places]
            minima = [cgutils.alloca_once_value(builder, zeros) for _ in range(4)]

            def lower(left: Any, so_far: Any, total: Any, rest: Any) -> None:
                """Lower the minima to the sums of one action: of both sides of a cut, below and above the lanes' cuts."""
                right = builder.fsub(write.spread(so_far), left)
                for variable, value in zip(
                    minima, (left, builder.fsub(total, left), right, builder.fsub(rest, right)), strict=True
                ):
                    builder.store(write.extreme("<", value, builder.load(variable)), variable)

            def keep() -> None:
                for k, variable in enumerate(found):
                    both = builder.fadd(builder.load(minima[2 * k]), builder.load(minima[2 * k + 1]))
                    builder.store(write.extreme("<", both, builder.load(variable)), variable)

            def restart() -> None:
                for variable in minima:
                    builder.store(zeros, variable)

            def constants(c: Any) -> tuple[Any, Any]:
                total = write.load(write.at(totals, c, 8 * LANES), FLOATS)
                return total, builder.fsub(write.spread(write.load(write.at(whole, c, 8), FLOAT)), total)

            fixed = [ir.Constant(WORD, c) for c in range(unrolled)]
            fixed_constants = [constants(c) for c in fixed]
            lefts = [cgutils.alloca_once_value(builder, zeros) for _ in fixed]
            runs = [cgutils.alloca_once_value(builder, ir.Constant(FLOAT, 0.0)) for _ in fixed]
            with cgutils.for_range(builder, builder.sub(n, ir.Constant(WORD, 1))) as loop:
                mask = write.mask_of(rows, place, masks, loop.index)
                first = builder.mul(loop.index, n_others)
                for c, left, so_far in zip(fixed, lefts, runs, strict=True):
                    step = write.load(write.at(losses, builder.add(first, c), 8), FLOAT)
                    builder.store(builder.fadd(builder.load(so_far), step), so_far)
                    builder.store(builder.fadd(builder.load(left), builder.fmul(mask, write.spread(step))), left)
                if unrolled:
                    with builder.if_then(write.is_end(ends, loop.index)):
                        restart()
                        for left, so_far, (total, rest) in zip(lefts, runs, fixed_constants, strict=True):
                            lower(builder.load(left), builder.load(so_far), total, rest)
                        keep()
                else:
                    restart()
                    with cgutils.for_range(builder, n_others) as actions:
                        c = actions.index
                        step = write.load(write.at(losses, builder.add(first, c), 8), FLOAT)
                        so_far = builder.fadd(write.load(write.at(run, c, 8), FLOAT), step)
                        write.store(so_far, write.at(run, c, 8))
                        at = write.at(sums, c, 8 * LANES)
                        left = builder.fadd(write.load(at, FLOATS), builder.fmul(mask, write.spread(step)))
                        write.store(left, at)
                        lower(left, so_far, *constants(c))
                    with builder.if_then(write.is_end(ends, loop.index)):
                        keep()
            for variable, at in zip(found, places, strict=True):
                write.store(builder.load(variable), at)
            return context.get_dummy_value()

        return signature, generate

    return scan


if SIMD:
    _scan_differences, _scan_losses, _scan_two, _scan_three = _differences(), _losses(), _losses(2), _losses(3)

    @apart
    def scan_differences(rows, place, losses, ends, n, masks, extremes):
        """Do the same as `plain_differences`."""
        _scan_differences(
            address_of(rows),
            address_of(place),
            address_of(losses),
            address_of(ends),
            n,
            address_of(masks),
            address_of(extremes),
        )

    @apart
    def scan_losses(rows, place, losses, ends, n, masks, totals, run, sums, best):
        """Do the same as `plain_losses`."""
        d, at, where, of = losses.shape[1], address_of(rows), address_of(place), address_of(losses)
        end, mask, total, so_far = address_of(ends), address_of(masks), address_of(totals), address_of(run)
        whole, kept, least = address_of(run[1]), address_of(sums), address_of(best)
        if d == 2:
            _scan_two(at, where, of, end, n, d, mask, total, so_far, whole, kept, least)
        elif d == 3:
            _scan_three(at, where, of, end, n, d, mask, total, so_far, whole, kept, least)
        else:
            sums[:] = 0.0
            _scan_losses(at, where, of, end, n, d, mask, total, so_far, whole, kept, least)

else:
    scan_differences, scan_losses = plain_differences, plain_losses
