r"""Faults of a table that estimates inherit: actions that are absent in a region of states, repeated episodes, features shifted by a row.

None of these checks looks at a policy. Each asks whether the log contradicts what every log should satisfy, with room for chance;
``docs/evidence.md`` has the shares of simulated faults that they find, and of clean tables that they flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Bools, Floats, Ints
from capi.data.transitions import Transitions
from capi.errors import LEAST_SHOWN, Caveat
from capi.offline.log import Log
from capi.policies import one_hot

MOST_ROWS = 20_000  # enough for every check but that of repeated episodes
REGION, REGION_ROWS = 0.1, 60  # smallest share and number of the rows in a region without an action
EXPECTED = 10.0  # decisions for an action that its share elsewhere predicts in such a region
RARELY = 0.01  # share of an action up to which it counts as absent from a group of states
REPEATED = 0.01  # share of repeated episodes above which there is a warning
FINITE = 0.1  # share of distinct values up to which repetitions are expected
LEAST_ROWS = 100  # by which a shift can be seen
MARGIN, SPREAD = (
    5.0,
    4.0,
)  # log-likelihood that a shift must gain: constant, and per square root of the number of slopes
RIDGE = 1e-6  # of standardised residuals: columns that follow from others carry no evidence


def log_caveats(log: Log) -> Iterator[Caveat]:
    """Yield a caveat for each fault of the table that the log itself reveals."""
    yield from _absent(log)
    yield from _repeated(log)
    yield from _shifted(log)


@dataclass(frozen=True)
class Region:
    """Rows in which an action is absent."""

    action: int
    n_rows: int
    share: float  # of the rows that allow the action
    elsewhere: float  # share of the action in all other rows
    where: str


def _absent(log: Log) -> Iterator[Caveat]:
    t = log.batch
    regions = [found for a in range(t.n_actions) if (found := absent_region(t, a, log.by_leaf[0])) is not None]
    if not regions:
        return
    worst = max(regions, key=lambda region: region.share * region.elsewhere)
    more = f" (and {len(regions) - 1} more such action{'s' if len(regions) > 2 else ''})" if len(regions) > 1 else ""
    action = f"{t.schema.action_labels[worst.action]!r}"
    rest = "nothing is known about it there. If it is impossible there, say so (allowed)."
    yield Caveat(
        "absent-action",
        f"{action} was never or almost never taken {worst.where} ({100 * worst.share:.0f} % of the rows), but in "
        f"{100 * worst.elsewhere:.0f} % of the others{more}: {rest}",
        "warning",
        count=worst.n_rows,
        share=worst.share,
        text_without_counts=f"{action} was never or almost never taken in some states: {rest}",
    )


def absent_region(batch: Transitions, action: int, leaves: Ints) -> Region | None:
    """Return the largest region in which an action is absent though its share elsewhere predicts many decisions for it.

    Regions are intervals of one feature, and the groups ``leaves`` (n,) of similar states.
    """
    rows = np.arange(len(batch)) if batch.allowed is None else np.flatnonzero(batch.allowed[:, action])
    every = 1 + len(rows) // MOST_ROWS
    rows = rows[::every]
    taken = batch.actions[rows] == action
    n, n_taken = len(rows), int(taken.sum())
    if not n_taken:  # `unlogged-actions` and `never-taken` say it
        return None
    found: list[tuple[int, int, str]] = []  # rows and decisions in the region, and its name
    for j, name in enumerate(batch.schema.feature_names):
        size, where = _widest_gap(batch.states[rows, j], taken, name)
        found.append((size, 0, where))
    for leaf in np.unique(leaves[rows]):
        inside = leaves[rows] == leaf
        size, inner = int(inside.sum()), int((inside & taken).sum())
        if inner <= RARELY * size:
            found.append((size, inner, "in a group of similar states"))
    size, inner, where = max(found, key=lambda region: region[0])
    elsewhere = (n_taken - inner) / max(n - size, 1)
    if size < max(REGION * n, REGION_ROWS) or size * elsewhere < EXPECTED:
        return None
    return Region(action, size * every, size / n, elsewhere, where)


def _widest_gap(feature: Floats, taken: Bools, name: str) -> tuple[int, str]:
    """Return the number of rows in the most populated interval of a feature in which no decision was ``taken`` (n,), and its name."""
    known = ~np.isnan(feature)
    ordered, at = np.sort(feature[known]), np.unique(feature[known & taken])
    if not len(at):
        return int(known.sum()), f"where {name} is known"
    starts = np.append(0, np.searchsorted(ordered, at, side="right"))
    ends = np.append(np.searchsorted(ordered, at, side="left"), len(ordered))
    widest = int(np.argmax(ends - starts))
    inside = ordered[starts[widest] : ends[widest]]
    if not len(inside):
        return 0, ""
    low, high = np.quantile(inside, [0.1, 0.9])  # not the ends, which are single rows
    return len(inside), f"where {name} is mostly between {low:.3g} and {high:.3g}"


def _repeated(log: Log) -> Iterator[Caveat]:
    share, by_chance = repeated_share(log.batch, log.episodes.starts)
    if share <= max(REPEATED, by_chance):
        return
    n = round(share * len(log.episodes))
    rest = "an earlier one in every row: intervals are too short if they are copies. Remove duplicates from the table."
    yield Caveat(
        "repeated-episodes",
        f"{n} of the {len(log.episodes)} episodes repeat {rest}",
        "warning",
        count=n,
        share=share,
        text_without_counts=f"fewer than {LEAST_SHOWN} episodes, or all but so few, repeat {rest}",
    )


def repeated_share(batch: Transitions, starts: Ints) -> tuple[float, float]:
    """Return the share of episodes that repeat an earlier one, and the largest share that chance would explain.

    Two episodes whose first states agree can also agree in the rest by chance: as often as two decisions agree or, if rewards take many values, as
    two decisions agree with their rewards. Where there are few distinct states nothing can be said.
    """
    n_episodes = len(starts)
    of_states = _hashed(batch.states)
    if len(np.unique(of_states)) <= FINITE * len(of_states):
        return 0.0, 1.0
    actions = batch.actions.astype(np.float64)
    many_rewards = len(np.unique(batch.rewards)) > FINITE * len(batch)
    decided = _hashed(np.column_stack([actions, batch.rewards]) if many_rewards else actions[:, None])
    rows = of_states * np.uint64(3) + _hashed(np.column_stack([actions, batch.rewards])) * np.uint64(5)
    lengths = np.diff(starts, append=len(batch))
    step = np.arange(len(batch)) - np.repeat(starts, lengths)
    episodes = np.add.reduceat(rows * (2 * step.astype(np.uint64) + np.uint64(1)), starts)
    pairs, chances = _pairs(episodes), _pairs(of_states[starts]) * 2 * _pairs(decided) / max(len(batch) ** 2, 1)
    share = (n_episodes - len(np.unique(episodes))) / n_episodes
    if not pairs:
        return 0.0, 0.0
    return share, share * (chances + 4 * np.sqrt(chances)) / pairs


def _pairs(values: NDArray[np.uint64]) -> float:
    """Return the number of pairs of equal values."""
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1)).sum() / 2)


def _hashed(table: Floats) -> NDArray[np.uint64]:
    """Return a hash of each row."""
    total = np.zeros(len(table), dtype=np.uint64)
    for column in table.T:
        bits = np.ascontiguousarray(column + 0.0).view(np.uint64)  # turns -0 into 0
        total = (total ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        total ^= total >> np.uint64(29)
    return total


def _shifted(log: Log) -> Iterator[Caveat]:
    found = shift(log.batch, log.episodes.starts)
    if found:
        row = "next" if found > 0 else "previous"
        yield Caveat(
            "shifted-features",
            f"the logged decisions fit the states of the {row} row better than those of their own: the columns of the state seem to be shifted by a "
            "row against actions and rewards. Check how the table was made.",
            "severe",
        )


def shift(batch: Transitions, starts: Ints) -> int:
    """Return 1 if decisions belong to the states of the next row, -1 if to those of the previous row, 0 if nothing speaks against their own.

    Several rows per episode: of two linear models of actions and next states, the one whose states are shifted must be more likely. In the first,
    an action depends on its row's state, and moves it to the next; in the other, it does so from the state of a neighbouring row. Single
    rows: actions and rewards depend on the state of a neighbouring row instead of their own.
    """
    n = min(len(batch), MOST_ROWS)
    states, rewards = _standardised(batch.states[:n]), _standardised(batch.rewards[:n, None])
    actions = one_hot(batch.actions[:n], batch.n_actions)[:, :-1]
    episode = np.searchsorted(starts, np.arange(n), side="right")
    chain = np.flatnonzero(episode[2:] == episode[:-2]) + 1  # rows with both neighbours in their episode
    one_row = len(starts) == len(batch)
    j = np.arange(1, n - 1) if one_row else chain
    if len(j) < LEAST_ROWS:
        return 0
    gains = {}
    for way in (1, -1):
        if one_row:
            own = _likelihood(actions[j], states[j]) + _likelihood(rewards[j], states[j], actions[j])
            other = _likelihood(actions[j], states[j + way]) + _likelihood(rewards[j], states[j + way], actions[j])
        else:  # both models explain the same numbers: the actions of the rows i, and the states that follow the rows j
            i = j if way > 0 else j + 1
            own = _likelihood(actions[i], states[i]) + _likelihood(states[j + 1], states[j], actions[j])
            other = _likelihood(actions[i], states[i + way]) + _likelihood(states[j + 1], states[j], actions[j - way])
        gains[way] = other - own
    d, a = states.shape[1], actions.shape[1]
    n_slopes = 2 * d * (a + 1) if one_row else 3 * d * a  # those in which the models differ
    best = max(gains, key=lambda way: gains[way])
    return best if gains[best] > MARGIN + SPREAD * np.sqrt(n_slopes) else 0


def _likelihood(targets: Floats, states: Floats, actions: Floats | None = None) -> float:
    """Return the log-likelihood of ``targets`` (n, m) as normal variables around a linear model of states, their squares and actions."""
    n = len(targets)
    inputs = [np.ones((n, 1)), states, states**2, *([] if actions is None else [actions])]
    x = np.concatenate(inputs, axis=1)
    slopes = np.linalg.lstsq(x.T @ x + RIDGE * n * np.eye(x.shape[1]), x.T @ targets, rcond=None)[0]
    rest = targets - x @ slopes
    spread = rest.T @ rest / n + RIDGE * np.eye(targets.shape[1])
    return -n / 2 * float(np.linalg.slogdet(spread)[1])


def _standardised(table: Floats) -> Floats:
    """Return columns (n, m) with mean 0 and spread 1, as far as they vary; missing values become 0, and outliers are drawn in."""
    out = np.zeros(table.shape)
    for z, column in zip(out.T, table.T, strict=True):
        known = np.isfinite(column)
        if not known.any():
            continue
        inside = np.clip(column[known], *np.quantile(column[known], [0.01, 0.99]))
        spread = float(inside.std())
        if 0 < spread < np.inf:
            z[known] = (inside - inside.mean()) / spread
    return out
