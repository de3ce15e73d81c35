"""Kernels of the temporal-difference family, which process the batch row by row.

In vectors over state-action features (A p,) the block of action a starts at index a p. A feature table holds the entries of
row i in ``data[starts[i]:starts[i + 1]]``, and ``columns`` holds their column numbers; for a dense table it is empty. One loop
serves both: with separate loops, numba would count references to the arrays in every call, which is five times slower.

The trace is zero except in the runs of ``width`` entries that ``listed`` marks and ``active`` lists: a whole block of dense
features, or a single sparse one. So a row without predecessors costs time proportional to its number of features.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capi._utils.compile import compiled, compiled_any_order

TD, GTD, GTD2, TDC = range(4)
ZERO, ONE = np.uint64(0), np.uint64(1)
TINY = 1e-100


class Table(NamedTuple):
    """The features of some rows."""

    data: NDArray[np.float64]
    columns: NDArray[np.uint64]
    starts: NDArray[np.uint64]  # (n + 1,)


class Rows(NamedTuple):
    """The other columns of the rows."""

    actions: NDArray[np.uint64]  # (n,)
    rewards: NDArray[np.float64]  # (n,)
    ahead: NDArray[np.float64]  # (n, A) discount times probability of each next action, zero after termination
    carry: NDArray[np.float64]  # (n,) decay of the previous row's trace, zero where an episode starts
    weight: NDArray[np.float64]  # (n,)


class Memory(NamedTuple):
    """The arrays that the kernel updates in every row."""

    theta: NDArray[np.float64]  # (A p,) the weights
    drift: NDArray[np.float64]  # (A p,) the weights minus their average
    second: NDArray[np.float64]  # (A p,) the second weights w, up to a factor
    factor: NDArray[np.float64]  # (1,) that factor
    trace: NDArray[np.float64]  # (A p,)
    listed: NDArray[np.bool_]  # (A p,)
    active: NDArray[np.uint64]  # (A p,)
    n_active: NDArray[np.uint64]  # (1,)


@compiled_any_order  # vectorised sums: dense rows take half the time
def product(vector, offset, data, columns, start, stop):
    """Return the product of the features from ``start`` to ``stop`` with the block of ``vector`` at ``offset``."""
    sparse = len(columns) > 0
    total = 0.0
    for k in range(stop - start):
        total += data[start + k] * vector[offset + (columns[start + k] if sparse else k)]
    return total


@compiled
def squared_lengths(data, starts, out):
    """Write the squared norm of each row's features to ``out`` (n,)."""
    for i in range(len(out)):
        total = 0.0
        for k in range(starts[i], starts[i + 1]):
            total += data[k] * data[k]
        out[i] = total


@compiled
def gather(data, columns, starts, chosen, out_data, out_columns, out_starts):
    """Copy the features of the ``chosen`` rows (m,) to a contiguous table; ``out_starts`` (m + 1,) begins with a zero."""
    sparse = len(columns) > 0
    for t in range(len(chosen)):
        start, to = starts[chosen[t]], out_starts[t]
        length = starts[chosen[t] + 1] - start
        for k in range(length):
            out_data[to + k] = data[start + k]
        if sparse:
            for k in range(length):
                out_columns[to + k] = columns[start + k]
        out_starts[t + 1] = to + length


@compiled
def add_features(vector, offset, data, columns, start, stop, size):
    """Add ``size`` times the features from ``start`` to ``stop`` to the block of ``vector`` at ``offset``."""
    sparse = len(columns) > 0
    for k in range(stop - start):
        vector[offset + (columns[start + k] if sparse else k)] += size * data[start + k]


@compiled
def fade(trace, listed, active, n_active, width, carry):
    """Multiply the trace by ``carry``; return the number of runs that remain."""
    for k in range(n_active):
        place = active[k]
        for j in range(width):
            trace[place + j] *= carry
        listed[place] = carry != 0.0
    return n_active if carry != 0.0 else ZERO


@compiled
def mark(listed, active, n_active, width, offset, columns, start, stop):
    """List the runs of the features from ``start`` to ``stop``; return the new number of runs."""
    for k in range(start, stop, width):
        place = offset + (columns[k] if len(columns) else ZERO)
        if not listed[place]:
            listed[place] = True
            active[n_active] = place
            n_active += ONE
    return n_active


@compiled_any_order  # vectorised sums: dense rows take half the time
def trace_product(vector, trace, active, n_active, width):
    """Return the product of the trace with ``vector``."""
    total = 0.0
    for k in range(n_active):
        place = active[k]
        for j in range(width):
            total += trace[place + j] * vector[place + j]
    return total


@compiled
def add_trace(vector, trace, active, n_active, width, size):
    """Add ``size`` times the trace to ``vector``."""
    for k in range(n_active):
        place = active[k]
        for j in range(width):
            vector[place + j] += size * trace[place + j]


@compiled
def learn(method, now, following, rows, steps, second_steps, late, limit, width, memory):
    """Process the rows; return how many were processed before Q exceeded ``limit``.

    ``steps`` and ``second_steps`` (n,) are the step sizes, and ``late`` (n,) is the share of the averaging window that precedes
    each step. ``width`` is the length of a run of the trace; 0 means no traces, and then the trace is the row's own features
    times its weight. All arrays of ``memory`` are updated.
    """
    data, columns, starts = now  # unpacked here, because a tuple of arrays in the inner loop is slow
    next_data, next_columns, next_starts = following
    actions, rewards, ahead, carry, weight = rows
    theta, drift, second, factor, trace, listed, active, counter = memory
    n_actions, n_active, common = np.uint64(ahead.shape[1]), counter[0], factor[0]
    p = np.uint64(len(theta)) // n_actions
    done = len(actions)
    for t in range(len(actions)):
        i, omega = np.uint64(t), weight[t]
        offset, start, stop = actions[i] * p, starts[i], starts[i + ONE]
        next_start, next_stop = next_starts[i], next_starts[i + ONE]
        value, delta = product(theta, offset, data, columns, start, stop), rewards[i]
        for a in range(n_actions):
            if ahead[i, a] != 0.0:
                delta += ahead[i, a] * product(theta, a * p, next_data, next_columns, next_start, next_stop)
        delta -= value
        if not (abs(value) <= limit and abs(delta) <= limit):
            done = t
            break
        if width > 0:
            n_active = fade(trace, listed, active, n_active, width, carry[i])
            n_active = mark(listed, active, n_active, width, offset, columns, start, stop)
            add_features(trace, offset, data, columns, start, stop, omega)
        traced = direct = 0.0
        if method != TD:
            seen = common * product(second, offset, data, columns, start, stop)
            traced = common * trace_product(second, trace, active, n_active, width) if width > 0 else omega * seen
            direct = traced - omega * seen if method == TDC else traced
            own = 0.0
            if method == GTD:
                common *= 1.0 - second_steps[t] * omega
                if abs(common) < TINY:
                    for j in range(len(second)):  # ``second *= common`` would count references in the loop
                        second[j] *= common
                    common = 1.0
            else:
                own = -omega * seen
            if width > 0:
                add_trace(second, trace, active, n_active, width, second_steps[t] * delta / common)
            else:
                own += omega * delta / common
            add_features(second, offset, data, columns, start, stop, second_steps[t] * own)
        if method == TD or method == TDC:  # noqa: SIM109
            if width > 0:
                add_trace(theta, trace, active, n_active, width, steps[t] * delta)
                if late[t] > 0.0:
                    add_trace(drift, trace, active, n_active, width, late[t] * steps[t] * delta)
            else:
                direct += omega * delta
        if direct != 0.0:
            add_features(theta, offset, data, columns, start, stop, steps[t] * direct)
            if late[t] > 0.0:
                add_features(drift, offset, data, columns, start, stop, late[t] * steps[t] * direct)
        if traced != 0.0:
            for a in range(n_actions):
                if ahead[i, a] != 0.0:
                    size = -steps[t] * traced * ahead[i, a]
                    add_features(theta, a * p, next_data, next_columns, next_start, next_stop, size)
                    if late[t] > 0.0:
                        add_features(drift, a * p, next_data, next_columns, next_start, next_stop, late[t] * size)
    counter[0], factor[0] = n_active, common
    return done
