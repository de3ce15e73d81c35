"""The loops of `simd` and `walk` without vector types, for ``CAPI_SIMD=0`` and for running without a compiler.

They give the same bytes, so sums are added in the same order: `N_SUMS` partial sums, each over every fourth row; the
remaining rows are added to the first, and the four partial sums are added in pairs at the end.
"""

import numpy as np

from capi._utils.compile import kernel
from capi.trees._kernels.memory import read_16, read_32, read_64, read_float, write_64, write_float

LANES = 8  # codes that are compared together
N_SUMS = 4  # independent partial sums, because an addition waits for the previous one

GROUPS = 8  # groups of states that walk together
MISSING = 2**24 - 1
CHILD_SHIFT, CUT_SHIFT, FEATURE_SHIFT = 40, 16, 1
FEATURES = 2**15 - 1


@kernel
def read_code(address, bits):
    """Return the code of ``bits`` bits, 16 or 32, at an address."""
    return np.uint64(read_16(address)) if bits == 16 else np.uint64(read_32(address))


@kernel
def largest_of(bits):
    """Return the largest code of ``bits`` bits."""
    return (np.uint64(1) << np.uint64(bits)) - np.uint64(1)


@kernel
def sum_of(first, n, size):
    """Return the sum of n floats, spaced ``size`` bytes apart from the address ``first``."""
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    whole = n - n % N_SUMS
    for row in range(0, whole, N_SUMS):
        here = first + row * size
        one += read_float(here)
        two += read_float(here + size)
        three += read_float(here + 2 * size)
        four += read_float(here + 3 * size)
    for row in range(whole, n):
        one += read_float(first + row * size)
    return (one + two) + (three + four)


@kernel
def extremes(bits, records, n, size, low, high, y):
    """Write the extremes of each lane, and return the sum of the outputs; see `capi.trees._kernels.simd`."""
    for lane in range(LANES):
        first, least, most = records + lane * bits // 8, largest_of(bits), np.uint64(0)
        for row in range(n):
            code = read_code(first + row * size, bits)
            least, most = min(least, code), max(most, code)
        write_64(low + 8 * lane, least)
        write_64(high + 8 * lane, most)
    return sum_of(records + y, n, size)


@kernel
def plus_below(so_far, code, y, bits, cut):
    """Return the sum so far, plus the float at address ``y`` if the code at address ``code`` is at most the cut."""
    return so_far + read_float(y) if read_code(code, bits) <= cut else so_far


@kernel
def sums(bits, records, n, size, y, cuts, out, counts):
    """Write the sum of the outputs up to the cut of each lane, and the number of rows; see `capi.trees._kernels.simd`."""
    whole, outputs = n - n % N_SUMS, records + y
    for lane in range(LANES):
        cut, codes = read_64(cuts + 8 * lane) & largest_of(bits), records + lane * bits // 8
        one, two, three, four = 0.0, 0.0, 0.0, 0.0
        for row in range(0, whole, N_SUMS):
            a, b, c, d = row * size, (row + 1) * size, (row + 2) * size, (row + 3) * size
            one = plus_below(one, codes + a, outputs + a, bits, cut)
            two = plus_below(two, codes + b, outputs + b, bits, cut)
            three = plus_below(three, codes + c, outputs + c, bits, cut)
            four = plus_below(four, codes + d, outputs + d, bits, cut)
        for row in range(whole, n):
            one = plus_below(one, codes + row * size, outputs + row * size, bits, cut)
        count = np.uint64(0)
        for row in range(n):
            count += np.uint64(read_code(codes + row * size, bits) <= cut)
        write_float(out + 8 * lane, np.float64((one + two) + (three + four)))
        write_64(counts + 8 * lane, count)


@kernel
def divide(bits, source, n, size, offset, plus, cut, target):
    """Copy records to the two ends of ``target``, and return how many are at the front; see `capi.trees._kernels.simd`."""
    front, back = target, target + (n - 1) * size
    for row in range(n):
        here = source + row * size
        if (read_code(here + offset, bits) + np.uint64(plus)) & largest_of(bits) <= np.uint64(cut):
            place = front
            front += size
        else:
            place = back
            back -= size
        for step in range(0, size, 8):
            write_64(place + step, read_64(here + step))
    return (front - target) // size


@kernel
def extremes_of_16(records, n, size, low, high, y):
    """Write the `extremes` of 16-bit codes."""
    return extremes(16, records, n, size, low, high, y)


@kernel
def extremes_of_32(records, n, size, low, high, y):
    """Write the `extremes` of 32-bit codes."""
    return extremes(32, records, n, size, low, high, y)


@kernel
def sums_of_16(records, n, size, y, cuts, out, counts):
    """Write the `sums` of 16-bit codes."""
    sums(16, records, n, size, y, cuts, out, counts)


@kernel
def sums_of_32(records, n, size, y, cuts, out, counts):
    """Write the `sums` of 32-bit codes."""
    sums(32, records, n, size, y, cuts, out, counts)


@kernel
def divide_of_16(source, n, size, offset, plus, cut, target):
    """Call `divide` with 16-bit codes."""
    return divide(16, source, n, size, offset, plus, cut, target)


@kernel
def divide_of_32(source, n, size, offset, plus, cut, target):
    """Call `divide` with 32-bit codes."""
    return divide(32, source, n, size, offset, plus, cut, target)


@kernel
def count_up_to(values, x):
    """Return how many of the eight floats at address ``values`` are at most ``x``."""
    count = np.int64(0)
    for lane in range(LANES):
        count += np.int64(read_float(values + 8 * lane) <= x)
    return count


@kernel
def count_below(values, x):
    """Return how many of the eight floats at address ``values`` are less than ``x``."""
    count = np.int64(0)
    for lane in range(LANES):
        count += np.int64(read_float(values + 8 * lane) < x)
    return count


@kernel
def walk(nodes, codes, starts, at):
    """Send eight states to their leaves, one after the other; see `capi.trees._kernels.walk`."""
    for k in range(GROUPS):
        first = codes + 4 * np.int64(read_64(starts + 8 * k))
        here, child = np.int64(-1), np.int64(0)
        while child != here:  # a leaf's left child is the leaf itself
            here = child
            node = read_64(nodes + 8 * here)
            feature = np.int64((node >> np.uint64(FEATURE_SHIFT)) & np.uint64(FEATURES))
            code = np.uint64(read_32(first + 4 * feature)) + (node & np.uint64(1))
            cut = (node >> np.uint64(CUT_SHIFT)) & np.uint64(MISSING)
            is_right = (code & np.uint64(MISSING)) > cut
            child = np.int64(node >> np.uint64(CHILD_SHIFT)) + np.int64(is_right)
        write_64(at + 8 * k, np.uint64(here))
