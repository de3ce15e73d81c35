"""The buffers of one thread of the search for optimal trees."""

from __future__ import annotations

import numpy as np

from capi._utils.validation import Floats, Ints
from capi.policy_spaces.trees.greedy import DEEPEST
from capi.trees._optimal import records, tables

TABLES = 2**22  # numbers in the tables of one thread: twice 32 MB
SLOTS = 2**16  # of the cache
BOUNDS = 2**24  # of sides by their first features
NO_LIMIT = np.iinfo(np.int64).max


def room_for(
    problem: records.Problem, depth: int, limits: tuple[int | None, int | None], least: Floats, stop: Ints
) -> records.Work:
    """Return the buffers of one thread; ``limits`` are those of nodes and steps, ``least`` and ``stop`` are shared by all threads."""
    (n, n_columns), n_bins, levels = problem.losses.shape, np.diff(problem.firsts), DEEPEST - 1
    n_features, most = len(n_bins), int(n_bins.max())
    cells = int(problem.table_starts[-1, -1])
    largest = int(np.prod(np.sort(n_bins)[-2:])) if n_features > 1 else 0
    if not tables.by_tables(problem, n, cells):  # then not for fewer rows either
        cells, largest = 0, 0
    kept = cells if depth > 2 and cells * n_columns <= TABLES else largest
    stacked = most if depth > 2 and 0 < most * cells * n_columns <= TABLES else 0
    kept_bounds = depth > 2 and 2 * levels * most * n_features <= BOUNDS
    slots = SLOTS if depth > 2 and problem.caching else 1
    return records.Work(
        pairs=records.Tables(
            prefix=np.empty((n_columns, int(n_bins.sum()))),
            best=np.empty((4, int(n_bins.sum()))),
            raw=np.empty((2, int(n_bins.sum()))),
            rolling=np.empty((n_columns, most)),
            beside=np.empty((n_columns, most)),
            low_sums=np.empty(n_columns),
            high_sums=np.empty(n_columns),
            minima=np.empty((9, most)),
            bins=np.empty((2, int(n_bins.sum()), n_columns)),
            tables=np.empty((2, kept * n_columns)),
            filled=np.zeros(1, dtype=np.int64),
            bins_up_to=np.empty((stacked, int(n_bins.sum()), n_columns)),
            tables_up_to=np.empty((stacked, kept * n_columns)),
            stop=stop,
        ),
        scan=records.Scan(
            orders=np.empty((depth - 1, n_features, n), dtype=np.int32),
            codes=np.empty((depth - 1, n_features, n), dtype=np.int32),
            is_right=np.empty(n, dtype=np.uint8),
            totals=np.empty((levels, n_columns)),
            sums=np.empty((2, 2, n_columns)),
            is_end=np.empty((n_features, n), dtype=np.bool_),
            by_feature=np.empty((n_features, n, problem.n_actions - 1)),
            first_costs=np.empty(n_features),
            first_bounds=np.empty(n_features),
            active=np.empty(n_features, dtype=np.int64),
            place=np.empty(n, dtype=np.uint8),
            masks=np.triu(np.ones((records.LANES + 1, records.LANES))),
            lane_cuts=np.empty(records.LANES, dtype=np.int64),
            lane_ends=np.empty(records.LANES, dtype=np.int64),
            lane_totals=np.empty((n_columns, records.LANES)),
            lane_steps=np.empty((problem.n_actions - 1, records.LANES)),
            lane_sums=np.empty((problem.n_actions - 1, records.LANES)),
            lane_runs=np.empty((2, problem.n_actions - 1)),
            lane_costs=np.empty((2, records.LANES)),
            extremes=np.empty((4, records.LANES)),
        ),
        state=records.State(
            ends=np.empty(most + 1, dtype=np.int64),
            positions=np.empty((levels, most + 2), dtype=np.int64),
            reach=np.empty((levels, most + 2)),
            fresh=np.empty((2 * records.LANES, 2), dtype=np.int64),
            cuts=np.empty((levels, most), dtype=np.int64),
            low=np.empty((levels, most + 2)),
            high=np.empty((levels, most + 2)),
            waiting=np.empty((levels, most + 2, 2), dtype=np.int64),
            order=np.empty((levels, n_features), dtype=np.int64),
            nodes=np.zeros(levels, dtype=records.NODE),
            sides=np.zeros((levels, 2), dtype=records.SIDE),
            by_side=np.zeros((levels, 2, most + 2, n_features if kept_bounds else 0)),
            no_bounds=np.zeros(n_features),
            record=np.empty((levels, 7, 2), dtype=np.int64),
            kept=np.empty((2, 7, 2), dtype=np.int64),
            marks=np.empty((levels, most + 2), dtype=np.int64),
            keys=np.zeros(slots, dtype=np.int64),
            known=np.zeros(slots, dtype=records.SIDE),
            complete=np.zeros(slots, dtype=np.bool_),
            budget=np.array([(0, limits[0] or NO_LIMIT, 0, limits[1] or NO_LIMIT)], records.BUDGET),
            hint=np.full(2, -1),
            least=least,
            stop=stop,
        ),
    )
