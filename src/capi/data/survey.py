"""What one pass over the parts of a batch finds: a sample of whole episodes, counts, ranges, and few distinct states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Floats, Ints
from capi.data.episode_codes import codes_of
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError

if TYPE_CHECKING:
    from capi.data.readers.pieces import Decisions

MOST_DISTINCT = 20_000  # distinct states for which all rows are merged
MIXING = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)


class Source(Protocol):
    """A part of a batch, which is read whenever it is needed."""

    def read(self) -> Identified | None:
        """Return its decisions; None if there are none."""

    def rejection(self, row: int, column: str, rule: str) -> InvalidInputError:
        """Return the error for a broken rule in one of its decisions."""


class Identified(NamedTuple):
    """Decisions, and a number for each of their episodes (E,) that no other episode has, however the batch is divided."""

    batch: Transitions
    ids: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class InMemory:
    """A part that is already in memory; without episodes, rows are counted from ``first`` on."""

    batch: Transitions
    first: int = 0

    def read(self) -> Identified:
        """Return the batch."""
        rows = self.first + np.arange(len(self.batch)) if self.batch.episodes is None else None
        return Identified(self.batch, ids_of(self.batch, rows))

    def rejection(self, row: int, column: str, rule: str) -> InvalidInputError:
        """Return the error for a broken rule in one of the decisions."""
        return InvalidInputError(
            f"column {column!r}, row {self.first + row} of the parts together (the first is 0): {rule}."
        )


@dataclass(frozen=True, eq=False)
class FromTable:
    """A part of a table; without episodes, rows are counted from ``first`` on."""

    decisions: Decisions
    first: int = 0

    @property
    def kept(self) -> tuple[Any, ...]:
        """The partitions of a Dask DataFrame that workers keep."""
        return self.decisions.kept

    def read(self) -> Identified:
        """Return its decisions."""
        found = self.decisions.read()
        batch = Transitions._of(found)
        return Identified(batch, ids_of(batch, self.first + found.rows if batch.episodes is None else None))

    def rejection(self, row: int, column: str, rule: str) -> InvalidInputError:
        """Return the error for a broken rule in one of the decisions; it names the file and the row there."""
        table = self.decisions.piece.table([column])
        return table.rejection(column, rule, int(self.decisions.read().rows[row]))


@dataclass(frozen=True, eq=False)
class Chosen:
    """The episodes of a part whose keys lie in a range."""

    source: Source
    seed: np.uint64
    low: int
    high: int  # included

    @property
    def kept(self) -> tuple[Any, ...]:
        """The partitions of a Dask DataFrame that workers keep."""
        return getattr(self.source, "kept", ())

    def read(self) -> Identified | None:
        """Return these episodes."""
        found = self.source.read()
        if found is None:
            return None
        batch, ids = found
        chosen = self._chosen(ids)
        if chosen.all():
            return found
        return Identified(batch.subset(np.repeat(chosen, batch.episode_lengths)), ids[chosen]) if chosen.any() else None

    def rejection(self, row: int, column: str, rule: str) -> InvalidInputError:
        """Return the error for a broken rule in one of these decisions."""
        found = self.source.read()
        assert found is not None  # noqa: S101  it has this row
        rows = np.flatnonzero(np.repeat(self._chosen(found.ids), found.batch.episode_lengths))
        return self.source.rejection(int(rows[row]), column, rule)

    def _chosen(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        keys = keys_of(ids, self.seed)
        return (keys >= np.uint64(self.low)) & (keys <= np.uint64(self.high))


def missing_state(source: Source, part: str) -> str | None:
    """Return the message about the first missing value in the states of a part, which ``part`` of a learner cannot handle; None if there is none."""
    batch = loaded(source)
    missing = np.isnan(batch.states)
    if not missing.any():
        return None
    row, j = (int(number) for number in np.argwhere(missing)[0])
    columns = batch.schema.columns
    ends = np.cumsum([len(column.feature_names) for column in columns])
    column = columns[int(np.searchsorted(ends, j, side="right"))].name
    said = source.rejection(row, column, f"must have no missing values for {part}")
    return f"{said} Fill them in, leave the column out, or use FittedQ with OptimalTrees, Trees or Forests, which handle them."


def n_chosen(part: Chosen) -> int:
    """Return the number of rows of the chosen episodes."""
    found = part.read()
    return 0 if found is None else len(found.batch)


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass over all rows finds."""

    sample: Transitions  # whole episodes, drawn by their ids: the same for every partitioning
    n_rows: int
    n_episodes: int
    action_counts: Ints  # (A,)
    largest_reward: float  # absolute
    largest_weight: float
    merged: (
        tuple[Floats, Floats] | None
    )  # distinct states (m, d), and the rows of each (m,); None if there are too many
    seed: np.uint64  # of the keys by which episodes are drawn
    keys: NDArray[np.uint64]  # (E,) of the sample's episodes, in their order: rising

    @property
    def is_whole(self) -> bool:
        """Whether the sample has all rows."""
        return len(self.sample) == self.n_rows


# -- tasks on one part -------------------------------------------------------------------------------


def loaded(source: Source) -> Transitions:
    """Return the batch of a part, which has rows."""
    found = source.read()
    assert found is not None  # noqa: S101  empty parts are left out
    return found.batch


@dataclass(frozen=True, eq=False)
class Seen:
    """What one part adds to a survey."""

    sample: Transitions | None
    keys: NDArray[np.uint64]  # of the sampled episodes
    n_rows: int
    n_episodes: int
    action_counts: Ints
    largest_reward: float
    largest_weight: float
    merged: dict[bytes, int] | None

    @property
    def has_weight(self) -> bool:
        """Whether rows of its sample count."""
        return self.sample is not None and (self.sample.weights is None or bool(self.sample.weights.any()))


def surveyed(source: Source, seed: np.uint64, share: float) -> Seen:
    """Return what a part adds to a survey: ``share`` of its episodes, chosen by their keys, and its counts and ranges."""
    found = source.read()
    assert found is not None  # noqa: S101  empty parts are left out
    batch, keys = found.batch, keys_of(found.ids, seed)
    chosen = keys <= np.uint64(min(share * 2.0**64, 2.0**64 - 2048))
    if share >= 1:
        chosen[:] = True
    rows = np.repeat(chosen, batch.episode_lengths)
    return Seen(
        None if not chosen.any() else batch if chosen.all() else batch.subset(rows),
        keys[chosen],
        len(batch),
        len(keys),
        np.bincount(batch.actions, minlength=batch.n_actions),
        float(np.abs(batch.rewards).max()),
        1.0 if batch.weights is None else float(batch.weights.max()),
        _distinct(batch),
    )


def _distinct(batch: Transitions) -> dict[bytes, int] | None:
    """Return the rows of each distinct state, None if there are too many or rows differ in more than their state."""
    if batch.allowed is not None or batch.weights is not None:
        return None
    few = batch.states[: 2 * MOST_DISTINCT]
    if len(few) > MOST_DISTINCT and len(np.unique(_as_bytes(few))) > MOST_DISTINCT:
        return None
    states, counts = np.unique(_as_bytes(batch.states), return_counts=True)
    return (
        None if len(states) > MOST_DISTINCT else dict(zip([s.tobytes() for s in states], counts.tolist(), strict=True))
    )


def _as_bytes(states: Floats) -> NDArray[Any]:
    plain = np.ascontiguousarray(np.where(np.isnan(states), np.nan, states + 0.0))  # one NaN, and no -0
    return plain.view(np.dtype((np.void, 8 * states.shape[1])))[:, 0]


def together(seen: Sequence[Seen], seed: np.uint64) -> Survey:
    """Return the survey of all parts; its sample is in the order of the keys, whatever the parts are."""
    some = [one for one in seen if one.sample is not None]
    batch = Transitions.concat([one.sample for one in some if one.sample is not None], renumber_episodes=True)
    keys = np.concatenate([one.keys for one in some])
    order = np.argsort(keys, kind="stable")
    lengths, starts = batch.episode_lengths, batch.episode_starts
    rows = np.concatenate([np.arange(starts[e], starts[e] + lengths[e]) for e in order.tolist()])
    columns: dict[str, Any] = {name: getattr(batch, name)[rows] for name in batch._columns()}
    if batch.episodes is not None:
        columns["episodes"] = np.repeat(np.arange(len(order)), lengths[order])
    first = some[0].sample
    assert first is not None  # noqa: S101  of the parts that have some
    origin = first.origin if batch.elapsed is None or first.origin is None else replace(first.origin, episode_ids=None)
    sample = batch._with({**columns, "origin": None if batch.elapsed is None else origin})
    return Survey(
        sample,
        sum(one.n_rows for one in seen),
        sum(one.n_episodes for one in seen),
        np.sum([one.action_counts for one in seen], axis=0),
        max(one.largest_reward for one in seen),
        max(one.largest_weight for one in seen),
        _merged([one.merged for one in seen], batch.n_features),
        seed,
        keys[order],
    )


def _merged(tables: Sequence[Mapping[bytes, int] | None], n_features: int) -> tuple[Floats, Floats] | None:
    counts: dict[bytes, int] = {}
    for table in tables:
        if table is None:
            return None
        for state, n in table.items():
            counts[state] = counts.get(state, 0) + n
        if len(counts) > MOST_DISTINCT:
            return None
    ordered = sorted(counts)
    states = np.frombuffer(b"".join(ordered), dtype=np.float64).reshape(len(ordered), n_features)
    return states, np.array([float(counts[state]) for state in ordered])


def ids_of(batch: Transitions, rows: Ints | None) -> NDArray[np.uint64]:
    """Return a number for each episode (E,): from its id in the table, from its number, or, without episodes, from its row (n,)."""
    if batch.episodes is None or rows is not None:
        return codes_of(np.arange(len(batch)) if rows is None else rows)
    numbers = batch.episodes[batch.episode_starts]
    names = None if batch.origin is None else batch.origin.episode_ids
    return codes_of(numbers if names is None else names[numbers])


def keys_of(ids: NDArray[np.uint64], seed: np.uint64) -> NDArray[np.uint64]:
    """Return a random number for each episode (E,) that depends on its id and the ``seed`` alone; no two ids share one."""
    return _mixed(_mixed(ids + MIXING[0]) ^ seed)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers with all bits mixed (the finaliser of SplitMix64; Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * MIXING[1]
    x = (x ^ (x >> np.uint64(27))) * MIXING[2]
    return x ^ (x >> np.uint64(31))
