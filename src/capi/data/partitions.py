"""`PartitionedTransitions`: a batch in parts, each of which fits into memory while the whole need not."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from capi._utils.executors import Crew, ExecutorLike, check_executor, crew_of, is_dask_client
from capi._utils.randomness import RandomState, numbered_rng, seed_sequence
from capi._utils.validation import Floats, as_int, is_real
from capi.data.origin import Origin
from capi.data.readers.borders import with_whole_episodes
from capi.data.readers.looking import learned_schema, looked_at
from capi.data.readers.pieces import Decisions, ParquetRows, dask_partitions, parquet_files
from capi.data.readers.roles import RoleNames, Roles
from capi.data.schema import Schema
from capi.data.summary.coverage import SimilarStates
from capi.data.summary.description import described
from capi.data.summary.tallies import Tally, tally
from capi.data.survey import (
    Chosen,
    FromTable,
    InMemory,
    Survey,
    ids_of,
    loaded,
    missing_state,
    n_chosen,
    surveyed,
    together,
)
from capi.data.table_files import file_name
from capi.data.transitions import Transitions
from capi.errors import InvalidInputError

if TYPE_CHECKING:
    from capi.data.summary.description import Description

ROWS_PER_PARTITION = 1_000_000
SAMPLE_ROWS = 100_000
SAMPLE_STREAM, SPLIT_STREAM = 11, 12


class PartitionedTransitions:
    """A batch of logged decisions in parts, for tables larger than memory and for clusters.

    Learning from it gives the same bytes for any partitioning, in threads or on a cluster: `capi.CAPI.fit` takes it in place of
    `Transitions`. What trees look like is learned from a sample of whole episodes; their averages are those of all rows. See
    ``docs/scale.md``.

    Parameters
    ----------
    parts : sequence of Transitions
        With the same features, actions and optional columns; no episode may be in two of them. `from_parquet` and `from_dask` read
        tables.
    executor : dask.distributed.Client, optional
        The cluster whose workers read the parts and keep what belongs to them. By default threads of this process.
    n_jobs : int, optional
        Number of these threads; -1 is all cores.
    sample_rows : int
        About so many rows are in the sample.

    Examples
    --------
    >>> from capi.testing import random_batch
    >>> batch = PartitionedTransitions.of(random_batch(n_episodes=100), rows=200)
    >>> batch
    PartitionedTransitions: 362 rows in 2 partitions, 2 features, 3 actions
    >>> len(batch.sample(100, random_state=0)) < 200
    True
    """

    def __init__(
        self,
        parts: Sequence[Transitions],
        *,
        executor: ExecutorLike = None,
        n_jobs: int | None = -1,
        sample_rows: int = SAMPLE_ROWS,
    ) -> None:
        if isinstance(parts, Transitions) or not isinstance(parts, Sequence):
            raise InvalidInputError(
                f"parts must be a sequence of Transitions; got a {type(parts).__name__}. PartitionedTransitions.of divides one batch."
            )
        if not parts:
            raise InvalidInputError("parts must have at least one batch; there is none.")
        for i, part in enumerate(parts):
            if not isinstance(part, Transitions):
                raise InvalidInputError(f"parts must be Transitions; parts[{i}] is a {type(part).__name__}.")
            if part.schema != parts[0].schema or part._columns() != parts[0]._columns():
                raise InvalidInputError(
                    f"parts must have the same features, actions and columns; parts[{i}] differs from parts[0]. Read it with schema=first.schema."
                )
        if parts[0].episodes is not None:
            _check_apart(parts)
        self.n_rows: tuple[int, ...] = tuple(len(part) for part in parts)
        firsts = itertools.accumulate(self.n_rows, initial=0)
        sources = [InMemory(part, first) for part, first in zip(parts, firsts, strict=False)]
        origins = {id(part.origin): part.origin for part in parts if part.origin is not None}
        self._tables: list[Origin] | None = list(
            origins.values()
        )  # which several parts may share; None if each has its own
        self.name = self._tables[0].name if len(self._tables) == 1 else "arrays"
        self._set(sources, parts[0].schema, executor, n_jobs, sample_rows, [])

    def _set(
        self,
        sources: list[Any],
        schema: Schema,
        executor: ExecutorLike,
        n_jobs: int | None,
        sample_rows: int,
        notes: list[str],
    ) -> None:
        self.sources, self.schema, self.notes = sources, schema, notes
        self.executor, self.n_jobs = executor, n_jobs
        self._surveys: dict[tuple[int, int], Survey] = {}
        self.sample_rows = as_int(sample_rows, "sample_rows", minimum=1)
        _ = self.crew

    @classmethod
    def of(cls, batch: Transitions, rows: int = ROWS_PER_PARTITION, **settings: Any) -> PartitionedTransitions:
        """Return a batch in memory in parts of about ``rows`` rows, divided between episodes."""
        starts = batch.episode_starts
        ends = np.append(starts[1:], len(batch))
        number = (ends - 1) // as_int(rows, "rows", minimum=1)
        borders = np.append(starts[np.flatnonzero(np.append(True, number[1:] != number[:-1]))], len(batch))
        if len(borders) == 2:
            return cls([batch], **settings)
        return cls([batch.subset(np.arange(a, b)) for a, b in itertools.pairwise(borders)], **settings)

    @classmethod
    def from_parquet(
        cls,
        paths: Any,
        *,
        rows_per_partition: int = ROWS_PER_PARTITION,
        executor: ExecutorLike = None,
        n_jobs: int | None = -1,
        sample_rows: int = SAMPLE_ROWS,
        **roles: Unpack[RoleNames],
    ) -> PartitionedTransitions:
        """Return the decisions of Parquet files, which are read part by part whenever they are needed.

        One pass over the files finds the episodes, the action labels and the categories; columns of numbers are not read in it.

        Parameters
        ----------
        paths : str, Path, or sequence of these
            Files, folders, or patterns such as ``"log/*.parquet"``; all workers must see them under these names. Files are taken in
            the order of their names. An episode whose rows follow each other may cross from one file to the next. Files whose episodes
            come back are read together, up to 8 of them.
        rows_per_partition : int
            About so many rows are in memory at a time for each thread or worker.
        executor, n_jobs, sample_rows
            As in `PartitionedTransitions`.
        **roles
            The roles of the columns, as in `Transitions.from_frame`.
        """
        checked = Roles(**roles)
        files = parquet_files(paths, checked.columns, absolute=is_dask_client(executor))
        size = as_int(rows_per_partition, "rows_per_partition", minimum=1)
        n = files[-1].end
        pieces = [ParquetRows(files, ((a, min(a + size, n)),)) for a in range(0, n, size)]
        name = file_name(paths) if isinstance(paths, str | Path) else "the table"
        return cls._read(pieces, dict(roles), checked, executor, n_jobs, sample_rows, name)

    @classmethod
    def from_dask(
        cls,
        frame: Any,
        *,
        executor: ExecutorLike = None,
        n_jobs: int | None = -1,
        sample_rows: int = SAMPLE_ROWS,
        **roles: Unpack[RoleNames],
    ) -> PartitionedTransitions:
        """Return the decisions of a Dask DataFrame, whose partitions are computed whenever they are needed.

        Where an episode crosses from one partition to the next, the border moves. Partitions in which episodes come back are put together, up
        to 8 of them; ``frame.shuffle(on="episode")`` or ``frame.set_index("episode")`` beforehand avoids that. The partitions of such frames,
        which need all others, and of persisted ones stay on the workers, in memory or on their disks. A column may be the index.

        Parameters
        ----------
        frame : dask.dataframe.DataFrame
        executor, n_jobs, sample_rows
            As in `PartitionedTransitions`.
        **roles
            The roles of the columns, as in `Transitions.from_frame`.
        """
        if not hasattr(frame, "to_delayed") or not hasattr(frame, "columns"):
            raise InvalidInputError(f"frame must be a Dask DataFrame; got a {type(frame).__name__}.")
        check_executor(executor)
        pieces = dask_partitions(frame, executor if is_dask_client(executor) else None)
        return cls._read(pieces, dict(roles), Roles(**roles), executor, n_jobs, sample_rows, "the table")

    @classmethod
    def _read(
        cls,
        pieces: Sequence[Any],
        roles: dict[str, Any],
        checked: Roles,
        executor: ExecutorLike,
        n_jobs: int | None,
        sample_rows: int,
        name: str,
    ) -> PartitionedTransitions:
        crew = crew_of(executor, n_jobs)
        found = crew.results(crew.each(looked_at, list(pieces), roles))
        some = [i for i, one in enumerate(found) if one.n_rows]
        if not some:
            raise InvalidInputError("the table must have at least one row; it has none.")
        pieces, found = [pieces[i] for i in some], [found[i] for i in some]
        schema = learned_schema(found, checked)
        whole, sizes, notes = with_whole_episodes(pieces, found, checked.episode is not None)
        known = {name: value for name, value in roles.items() if name not in ("action_labels", "ordered")}
        made = object.__new__(cls)
        firsts = itertools.accumulate(sizes, initial=0)  # of use without episodes, where rows keep their order
        sources = [
            FromTable(Decisions(piece, {**known, "schema": schema}), first)
            for piece, first in zip(whole, firsts, strict=False)
        ]
        made.name, made._tables = name, None
        made._set(sources, schema, executor, n_jobs, sample_rows, notes)
        made.n_rows = (sum(one.n_rows for one in found),)
        return made

    @cached_property
    def crew(self) -> Crew:
        """Those who work on the parts."""
        return crew_of(self.executor, self.n_jobs)

    @cached_property
    def parts(self) -> list[Any]:
        """Handles of the parts, for `Crew.each`; `loaded` turns one into its batch."""
        kept = any(getattr(source, "kept", ()) for source in self.sources)  # those go where their partitions are
        return list(self.sources) if self.executor is None or kept else self.crew.each(_itself, self.sources)

    def __len__(self) -> int:
        return sum(self.n_rows)

    @property
    def n_partitions(self) -> int:
        """Number of parts."""
        return len(self.sources)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.schema.action_labels)

    @property
    def n_features(self) -> int:
        """Number of state columns, d."""
        return len(self.schema.feature_names)

    def __repr__(self) -> str:
        text = (
            f"PartitionedTransitions: {len(self)} rows in {self.n_partitions} partition{'' if self.n_partitions == 1 else 's'}, "
            f"{self.n_features} features, {self.n_actions} actions"
        )
        return "\n  ".join([text, *self.notes])

    def load(self, number: int) -> Transitions:
        """Return one of the parts as a batch."""
        return loaded(self.sources[number])

    def each(self, function: Callable[..., Any], *others: Any) -> list[Any]:
        """Return ``function(batch, *others)`` for each part; on a cluster it runs where the part is read."""
        return self.crew.results(self.crew.each(_of_batch, self.parts, function, *others))

    def sample(self, n_rows: int | None = None, *, random_state: RandomState = None) -> Transitions:
        """Return whole episodes with about ``n_rows`` rows in total, the same ones for every partitioning."""
        return self.survey(n_rows, random_state=random_state).sample

    def survey(self, n_rows: int | None = None, *, random_state: RandomState = None) -> Survey:
        """Return what one pass over all rows finds: a sample, counts and ranges."""
        wanted = self.sample_rows if n_rows is None else as_int(n_rows, "n_rows", minimum=1)
        seed = np.uint64(numbered_rng(seed_sequence(random_state), SAMPLE_STREAM).integers(2**63))
        known = (int(seed), wanted)
        if known not in self._surveys:  # the last one is kept, so that a loop that goes on finds the same sample
            self._surveys.clear()
            self._surveys[known] = self._surveyed(seed, min(1.0, wanted / len(self)))
        return self._surveys[known]

    def _surveyed(self, seed: np.uint64, share: float) -> Survey:
        while True:
            seen = self.crew.results(self.crew.each(surveyed, self.parts, seed, share))
            if max(one.largest_weight for one in seen) == 0:
                raise InvalidInputError("weight must be positive in some rows; it is 0 in all of them.")
            if any(one.has_weight for one in seen):
                return together(seen, seed)
            share = min(1.0, 8 * share)

    def split(
        self, share: float = 0.7, *, random_state: RandomState = None
    ) -> tuple[PartitionedTransitions, PartitionedTransitions]:
        """Return two partitioned batches that share no episode: about ``share`` of the episodes, and the rest.

        Which episodes they are depends on their ids and the seed, not on the partitioning; without episodes, on the numbers of the rows.
        """
        if not is_real(share) or not 0 < share < 1:
            raise InvalidInputError(f"share must lie strictly between 0 and 1; got {share!r}.")
        seed = np.uint64(numbered_rng(seed_sequence(random_state), SPLIT_STREAM).integers(2**63))
        border = int(share * 2**64)
        first, second = (self._with_keys(seed, *bounds) for bounds in ((0, border - 1), (border, 2**64 - 1)))
        return first, second

    def _with_keys(self, seed: np.uint64, low: int, high: int) -> PartitionedTransitions:
        chosen = [Chosen(source, seed, low, high) for source in self.sources]
        rows = self.crew.results(self.crew.each(n_chosen, chosen))
        kept = [(part, n) for part, n in zip(chosen, rows, strict=True) if n]
        if not kept:
            raise InvalidInputError("both sides of a split must have episodes; one has none. Use another share.")
        made = object.__new__(PartitionedTransitions)
        made.name, made._tables = self.name, self._tables
        made._set([part for part, _ in kept], self.schema, self.executor, self.n_jobs, self.sample_rows, self.notes)
        made.n_rows = tuple(n for _, n in kept)
        return made

    @cached_property
    def surveyed(self) -> Survey:
        """The survey with a fixed seed, made once."""
        return self.survey(random_state=0)

    @property
    def states(self) -> Floats:
        """The states of a sample, to which features are fitted."""
        return self.surveyed.sample.states

    @property
    def weights(self) -> Floats | None:
        """The weights of that sample."""
        return self.surveyed.sample.weights

    def check_actions_taken(self) -> None:
        """Refuse a batch in which an action is never taken: its value cannot be estimated."""
        counts = self.surveyed.action_counts
        if not counts.all():
            a = int(np.argmin(counts))
            raise InvalidInputError(
                f"each action must be taken in the batch; action {a} ({self.schema.action_labels[a]!r}) never is, so its value cannot "
                "be estimated. Leave it out."
            )

    def check_complete(self, part: str) -> None:
        """Refuse missing values, which ``part`` of a learner cannot handle; the message names the file, the column and the row."""
        for found in self.crew.results(self.crew.each(missing_state, self.parts, part)):
            if found is not None:
                raise InvalidInputError(found)

    def describe(self, schema: Schema | None = None) -> Description:
        """Return a summary of all rows; see `Transitions.describe`.

        Problems are looked for in a sample of whole episodes, whose number of rows the summary states.

        Parameters
        ----------
        schema : Schema, optional
            Other names of the columns and labels of the actions, to be used in the summary.
        """
        sample = self.surveyed.sample if schema is None else self.surveyed.sample._with({"schema": schema})
        groups = self.crew.shared(SimilarStates.of(sample))
        found = self.crew.merged(operator.add, self.crew.each(_tally, self.parts, groups, self._tables is None))
        for origin in self._tables or ():
            found = found.with_table(origin)
        return described(found, sample, self.name)


# -- tasks on one part -------------------------------------------------------------------------------


def _itself(source: Any) -> Any:
    return source


def _of_batch(source: Any, function: Callable[..., Any], *others: Any) -> Any:
    return function(loaded(source), *others)


def _tally(source: Any, groups: SimilarStates, with_table: bool) -> Tally:
    return tally(loaded(source), groups, with_table=with_table)


def _check_apart(parts: Sequence[Transitions]) -> None:
    """Refuse parts that share an episode."""
    ids = [np.unique(ids_of(part, None)) for part in parts]
    found, counts = np.unique(np.concatenate(ids), return_counts=True)
    if (counts > 1).any():
        shared = found[int((counts > 1).argmax())]
        i, j = [i for i, of_part in enumerate(ids) if shared in of_part][:2]
        batch = parts[i]
        e = int(np.flatnonzero(ids_of(batch, None) == shared)[0])
        number = 0 if batch.episodes is None else int(batch.episodes[batch.episode_starts[e]])
        names = None if batch.origin is None else batch.origin.episode_ids
        raise InvalidInputError(
            f"no episode may be in two parts; episode {number if names is None else names[number]!r} is in parts[{i}] and parts[{j}]. Give "
            "the episodes of all parts distinct numbers, or concatenate these parts."
        )
