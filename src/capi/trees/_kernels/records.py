"""The inputs and the workspace of the kernels that grow trees, which allocate nothing themselves.

Shapes: n rows, d features in *lanes* (d rounded up to whole groups of eight), m outputs. The two children of a node are
processed together: in tables with leading dimension 2, entry p belongs to child p.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Bools, Floats, Ints
from capi.trees._kernels.node import BLOCK
from capi.trees._kernels.plain import LANES

NODE = np.dtype([("threshold", "f8"), ("left", "i4"), ("feature", "i2"), ("missing_left", "u1"), ("unused", "u1")])
SPARE_ROWS = 2**13  # nodes with at most this many rows are divided through a second buffer, larger ones in place
N_BYTES = 256
Codes = NDArray[np.uint64]


class Features(NamedTuple):
    """The meaning of the codes; `capi.trees.ranks.EncodedStates` explains each field."""

    values: Floats
    value_starts: Ints
    grid: NDArray[np.int32]
    scales: Floats
    has_missing: Bools
    bits: int


class Layout(NamedTuple):
    """Offsets in a record: its codes, then the outputs, the weight if it has one, and its number."""

    first_output: int  # offsets are in words
    n_outputs: int
    weighted: int  # 0 or 1
    number: int
    number_shift: int  # in bits
    n_words: int

    @classmethod
    def of(cls, n: int, d: int, bits: int, n_outputs: int, *, weighted: bool) -> Layout:
        """Return the layout of n records.

        If the last lane is free and wide enough, it holds the number: smaller records are moved faster.
        """
        first_output = -(-d // LANES) * LANES * bits // 64
        end = first_output + n_outputs + weighted
        if d % LANES and n <= 2**bits:
            return cls(first_output, n_outputs, int(weighted), first_output - 1, 64 - bits, end)
        return cls(first_output, n_outputs, int(weighted), end, 0, end + 1)


class Limits(NamedTuple):
    """Growth parameters; `capi.trees.forest.Growth` explains each field."""

    n_candidates: int
    min_split: int
    min_leaf: int
    max_depth: int
    max_leaves: int  # 0: no limit
    best_cuts: bool
    policy: bool


class Pair(NamedTuple):
    """Data of the two nodes that are being processed."""

    place: Ints  # (2, 6) number, first row, end of rows, depth, and where the rows are stored
    low: Codes  # (2, lanes) the smallest code of each feature
    high: Codes  # (2, lanes)
    cut: Codes  # (2, lanes) the code of the threshold
    thresholds: Floats  # (2, lanes) the threshold that was drawn
    n_missing: Ints  # (2, lanes)
    candidates: Ints  # (2, d) features; those that can be cut come first
    n_candidates: Ints  # (2,)
    n_cut: Ints  # (2,) how many of them can be cut
    total: Floats  # (2, m) sums of the outputs
    weight: Floats  # (2,)
    best: Floats  # (2, 7) best split: feature, cut, missing_left, threshold, next value above, and two scores


class Cuts(NamedTuple):
    """The cuts of all features in one node: sums of the left side, and scores."""

    sums: Floats  # (m + 1, lanes) of the outputs and the weight
    counts: Ints  # (lanes,)
    weights: Floats  # (lanes,)
    best_left: Floats  # (lanes,) the least sum of any output on the left
    best_right: Floats  # (lanes,)
    variances: Floats  # (lanes,)
    scores: Floats  # (lanes,)


class Trial(NamedTuple):
    """A candidate split."""

    split: Floats  # (5,) as in `Pair.best`
    left: Floats  # (m,) sums of its left side
    missing: Floats  # (m,) sums of the rows whose value is missing
    keys: Codes  # (n,) codes and rows, to be sorted; empty unless all cuts are considered
    spare_keys: Codes  # (n,)
    starts: Ints  # (256,)


class Waiting(NamedTuple):
    """Nodes that will be split, and their splits."""

    places: Ints  # (n, 6) as in `Pair.place`
    splits: Floats  # (n, 6) as in `Pair.best`, and the gain


class Grown(NamedTuple):
    """The tree."""

    nodes: NDArray[np.void]  # (2n - 1,) of type NODE
    above: Floats  # (2n - 1,) the next value above each threshold
    sums: Floats  # (n, m) by leaf
    weights: Floats  # (n,) by leaf
    counts: Ints  # (n,) by leaf


class Workspace(NamedTuple):
    """All buffers that a thread needs to grow trees; allocating them for each tree would add a fifth of the time."""

    records: Codes  # (n, R)
    spare: Codes  # (up to SPARE_ROWS, R)
    wrong: Ints  # (2, BLOCK) rows to exchange
    order: Ints  # (d,)
    state: Codes  # (1,) state of the random number generator
    pair: Pair
    cuts: Cuts
    trial: Trial
    waiting: Waiting
    grown: Grown

    @classmethod
    def of(cls, n: int, d: int, layout: Layout, limits: Limits, bits: int) -> Workspace:
        """Return the buffers for trees on n rows of d features."""
        n_lanes, m = layout.first_output * 64 // bits, layout.n_outputs
        n_keys = n if limits.best_cuts else 0
        # Nodes wait on a stack, so all nodes that use the spare rows at the same time have a common ancestor. If the best node
        # is split first this does not hold, and all nodes are divided in place.
        n_spare = 0 if limits.max_leaves else min(n, SPARE_ROWS)
        return cls(
            records=np.empty((n, layout.n_words), dtype=np.uint64),
            spare=np.empty((n_spare, layout.n_words), dtype=np.uint64),
            wrong=_ints(2, BLOCK),
            order=_ints(d),
            state=_codes(1),
            pair=Pair(
                place=_ints(2, 6),
                low=_codes(2, n_lanes),
                high=_codes(2, n_lanes),
                cut=_codes(2, n_lanes),
                thresholds=np.empty((2, n_lanes)),
                n_missing=_ints(2, n_lanes),
                candidates=_ints(2, d),
                n_candidates=_ints(2),
                n_cut=_ints(2),
                total=np.empty((2, m)),
                weight=np.empty(2),
                best=np.empty((2, 7)),
            ),
            cuts=Cuts(np.empty((m + 1, n_lanes)), _ints(n_lanes), *(np.empty(n_lanes) for _ in range(5))),
            trial=Trial(np.empty(5), np.empty(m), np.empty(m), _codes(n_keys), _codes(n_keys), _ints(N_BYTES)),
            waiting=Waiting(np.empty((n, 6), dtype=np.int64), np.empty((n, 6))),
            grown=Grown(
                nodes=np.empty(2 * n - 1, dtype=NODE),
                above=np.empty(2 * n - 1),
                sums=np.empty((n, m)),
                weights=np.empty(n),
                counts=np.empty(n, dtype=np.int64),
            ),
        )


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


def _codes(*shape: int) -> Codes:
    return np.zeros(shape, dtype=np.uint64)
