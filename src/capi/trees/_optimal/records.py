"""The data of the search for optimal trees: the problem, its options, and the buffers of one thread."""

from typing import Any, NamedTuple

import numpy as np

NO_SPLIT = -1
BY_COST, BY_TABLES, BY_ROWS, BY_COLUMNS = 0, 1, 2, 3  # how the last two levels are searched
ONE_BY_ONE, MOVING, STACKED = 0, 1, 2  # how the sides of cuts above them are searched
AS_GIVEN, PROMISING, REVERSED = 0, 1, 2  # the order of features
BY_ITSELF, INTERRUPTED, BY_NODES, BY_TIME, BY_WORK = 0, 1, 2, 3, 4  # what ended the search
ROW_OF_SCAN, ROW_OF_TABLES = 4, 8  # columns' worth of work that a row takes in addition to its columns
TABLE_STEPS = 3  # steps of a scan that a step in a table takes, measured on 1,000 to 33,000 rows with 4 to 30 features
LANES = 8  # first cuts that one pass over the rows compares
ROOM = 0.5  # see `room_of`; 0.25 to 1 take about the same time
AT_ONCE = 4096  # rows that stay in the cache while they are added to all tables

NODE = np.dtype(  # the search in one node
    [
        ("cost", np.float64),  # of its best tree so far
        ("bound", np.float64),  # for any tree
        ("limit", np.float64),  # the largest cost of interest
        ("bar", np.float64),  # the largest cost of interest at the cut being searched
        ("feature", np.int64),  # of the best tree's first split
        ("cut", np.int64),
        ("place", np.int64),  # of the feature being searched, in the order of features
        ("n_cuts", np.int64),  # of this feature
        ("waiting", np.int64),  # the first interval of cuts that waits
        ("n_waiting", np.int64),  # and their number
        ("last_first", np.int64),  # 1 if the interval that came last is searched first, so that cuts stay close
        ("after", np.int64),  # the interval being searched lies after this cut
        ("before", np.int64),  # and before this one
        ("middle", np.int64),  # the cut being searched
        ("start", np.int64),  # the cut to search first, or -1
        ("n_left", np.int64),  # rows left of it
    ]
)
SIDE = np.dtype(  # the best tree on one side of a cut
    [("cost", np.float64), ("bound", np.float64), ("feature", np.int64), ("cut", np.int64)]
)
BUDGET = np.dtype(  # what was used, and what may be used
    [("nodes", np.int64), ("node_limit", np.int64), ("steps", np.int64), ("step_limit", np.int64)]
)


class Problem(NamedTuple):
    """The data of the search, and its options."""

    codes: Any  # (n, V) uint16
    losses: Any  # (n, C)
    most: Any  # (n,) the largest loss of each row
    sizes: Any  # (n,) int64, the number of equal rows that each row stands for; ones if leaves may have any size
    marks: Any  # (n,) int64, random: the marks of a set of rows, combined by exclusive or, tell it from all others
    firsts: Any  # (V + 1,) where the bins of each feature start
    table_starts: Any  # (V, V) where the table of a pair of features starts, in cells
    n_actions: int
    penalty: float  # of a leaf, positive
    min_leaf: int
    bounds: bool
    caching: bool
    ordering: int
    engine: int


class Tables(NamedTuple):
    """Buffers for tables over bins; K is the largest number of bins."""

    prefix: Any  # (C, B) sums up to each bin
    best: Any  # (4, B) the least cost left and right of each cut, then the same relaxed
    raw: Any  # (2, B) cost of the best single action left and right of each cut
    rolling: Any  # (C, K) sums below two cuts, by the second one
    beside: Any  # (C, K) sums above the first and below the second
    low_sums: Any  # (C,) sums below the first cut
    high_sums: Any  # (C,) and above it
    minima: Any  # (9, K)
    bins: Any  # (2, B, C) sums of the rows in each bin: of all rows of a node, and of those left of a cut
    tables: Any  # (2, cells * C) and of each pair of bins
    filled: Any  # (1,) 1 if the sums of all rows of the root are in the tables
    bins_up_to: Any  # (K, B, C) the same for the rows up to each bin of a feature, if there is room
    tables_up_to: Any  # (K, cells * C)
    stop: Any  # (1,)


class Scan(NamedTuple):
    """Buffers for passes over rows; L levels."""

    orders: Any  # (L, V, n) int32, the rows of the nodes of each level, in the order of each feature
    codes: Any  # (L, V, n) int32, the codes of these rows
    is_right: Any  # (n,) uint8
    totals: Any  # (L, C)
    sums: Any  # (2, 2, C)
    is_end: Any  # (V, n) bool, whether a row of a node is followed by a cut, in the order of each feature
    by_feature: Any  # (V, n, A - 1) the losses of these rows, less that of the first action
    first_costs: Any  # (V,) of the best cut of each feature
    first_bounds: Any  # (V,) the same, relaxed
    active: Any  # (V,) features with cuts in a node
    place: Any  # (n,) uint8, see `rows`
    masks: Any  # (lanes + 1, lanes) 1 where rows of a place are left of a lane's cut
    lane_cuts: Any  # (lanes,)
    lane_ends: Any  # (lanes,) rows left of each lane's cut
    lane_totals: Any  # (C, lanes) and their losses
    lane_steps: Any  # (A - 1, lanes) and these, less that of the first action
    lane_sums: Any  # (A - 1, lanes)
    lane_runs: Any  # (2, A - 1)
    lane_costs: Any  # (2, lanes) least costs of both sides
    extremes: Any  # (4, lanes)


class State(NamedTuple):
    """The search in all nodes of a path."""

    ends: Any  # (K + 1,) where the bins of a feature start
    positions: Any  # (L, K + 2) rows left of each cut
    reach: Any  # (L, K + 2) the sum of the largest losses of the rows left of each cut
    fresh: Any  # (2 lanes, 2) intervals between these cuts
    cuts: Any  # (L, K) the cuts of a feature that separate rows of the node
    low: Any  # (L, K + 2) lower bounds on the cost of the left side of these
    high: Any  # (L, K + 2) and of the right side
    waiting: Any  # (L, K + 2, 2) the intervals of cuts still to be searched
    order: Any  # (L, V) order of features
    nodes: Any  # (L,) NODE
    sides: Any  # (L, 2) SIDE
    by_side: Any  # (L, 2, K + 2, V) lower bounds for the sides of each cut, by their first feature; V may be 0
    no_bounds: Any  # (V,) zeros
    record: Any  # (L, 7, 2) the splits of each level's best tree, those of node i at 2i + 1 and 2i + 2
    kept: Any  # (2, 7, 2)
    marks: Any  # (L, K + 2) int64, of the rows left of each cut
    keys: Any  # (H,) int64, the cache: the marks of sets of rows
    known: Any  # (H,) SIDE
    complete: Any  # (H,) whether the cost is the least
    budget: Any  # (1,) BUDGET
    hint: Any  # (2,) the feature and the cut to search first at the root, or -1
    least: Any  # (1,) the least cost of a whole tree so far
    stop: Any  # (1,)


class Work(NamedTuple):
    """Buffers of one thread. ``stop`` and ``least`` are shared by all threads.

    They are in groups, because compilation takes longer the more arrays a kernel is given.
    """

    pairs: Tables
    scan: Scan
    state: State
