"""Tables that are read piece by piece: where the pieces begin, what their columns hold, and the decisions of one piece.

Episodes are never divided. Where one crosses the border between two pieces, the border moves; where one comes back later, its pieces
are put together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from capi._utils.late import pandas as pd
from capi._utils.late import pyarrow as pa
from capi._utils.late import pyarrow_compute as pc
from capi._utils.validation import first_line
from capi.data.columns import Column
from capi.data.episode_codes import codes_of
from capi.data.readers.actions import actions_of
from capi.data.readers.arrow import Table, parquet_table
from capi.data.readers.encode import learn, nan_as_null
from capi.data.readers.foreign import decoded
from capi.data.readers.ordered import ordered_column
from capi.data.readers.read import Read, read
from capi.data.readers.roles import Roles
from capi.data.schema import Schema
from capi.data.table_files import existing
from capi.errors import CapiError, InvalidInputError

MOST_TOGETHER = 8  # pieces that may become one because an episode is in all of them
SAMPLED_DATES = 1000  # of a column of dates: the first year and whether they have times follow from few


class Piece(Protocol):
    """Some rows of a table that does not fit into memory."""

    @property
    def name(self) -> str:
        """What errors call it."""

    def arrow(self, names: Sequence[str]) -> Any:
        """Return the named columns as an Arrow table."""

    def joined(self, other: Any) -> Piece:
        """Return the rows of both."""


class File(NamedTuple):
    """A Parquet file and the number of its first row in the whole table."""

    path: str
    first: int
    groups: tuple[int, ...]  # where its row groups begin in the file, and the number of its rows

    @property
    def end(self) -> int:
        """The number of the row after its last one."""
        return self.first + self.groups[-1]


@dataclass(frozen=True)
class ParquetRows:
    """Rows of Parquet files, counted through all of them."""

    files: tuple[File, ...]
    spans: tuple[tuple[int, int], ...]  # first and last + 1

    @property
    def name(self) -> str:
        """The files of these rows."""
        paths = [file.path for file in self._mine]
        return paths[0] if len(paths) == 1 else f"{paths[0]} to {paths[-1]}"

    @property
    def first_row(self) -> int:
        """The number of the first row in its file, from 1."""
        return 1 + self.spans[0][0] - self._mine[0].first

    @property
    def _mine(self) -> list[File]:
        return [file for file in self.files if any(a < file.end and file.first < b for a, b in self.spans)]

    def arrow(self, names: Sequence[str]) -> Any:
        """Return the named columns as an Arrow table; only row groups that hold some of the rows are read."""
        tables = [
            self._of_file(file, a, b, names)
            for a, b in self.spans
            for file in self.files
            if a < file.end and file.first < b
        ]
        if len(tables) == 1:
            return tables[0]
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise InvalidInputError(
                f"{self.name}: its columns differ from file to file: {first_line(error)}."
            ) from error

    def joined(self, other: ParquetRows) -> ParquetRows:
        """Return the rows of both, adjoining ones as one span."""
        spans: list[tuple[int, int]] = []
        for a, b in sorted(self.spans + other.spans):
            if spans and spans[-1][1] == a:
                spans[-1] = (spans[-1][0], b)
            else:
                spans.append((a, b))
        return ParquetRows(self.files, tuple(spans))

    def _of_file(self, file: File, first: int, end: int, names: Sequence[str]) -> Any:
        low, high = max(first - file.first, 0), min(end - file.first, file.groups[-1])
        groups = [g for g, (a, b) in enumerate(zip(file.groups, file.groups[1:], strict=False)) if a < high and low < b]
        try:
            with pa.parquet.ParquetFile(file.path) as opened:
                table = opened.read_row_groups(groups, columns=list(names), use_threads=False)
        except Exception as error:  # damaged files raise errors of many types
            raise InvalidInputError(f"{file.path}: cannot be read as Parquet: {first_line(error)}.") from error
        return table.slice(low - file.groups[groups[0]], high - low)


@dataclass(frozen=True, eq=False)
class DaskFrame:
    """A partition of a Dask DataFrame, or several."""

    delayed: tuple[Any, ...]
    number: int
    first_row: int = 0

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"partition {self.number} of the Dask DataFrame"

    def arrow(self, names: Sequence[str]) -> Any:
        """Return the named columns as an Arrow table."""
        frames = [part.compute(scheduler="synchronous") for part in self.delayed]
        frame = frames[0] if len(frames) == 1 else pd.concat(frames)
        Table(self.name, tuple(frame.columns), 0, lambda name: name).check_names(names)
        return pa.Table.from_pandas(frame[list(names)], preserve_index=False)

    def joined(self, other: DaskFrame) -> DaskFrame:
        """Return the rows of both."""
        return DaskFrame(self.delayed + other.delayed, self.number)


@dataclass(frozen=True, eq=False)
class Decisions:
    """A piece, the roles of its columns, and how they are encoded: what a worker needs to read it."""

    piece: Any
    roles: Mapping[str, Any]

    def read(self) -> Read:
        """Return the checked decisions of the piece."""
        roles = Roles(**self.roles)
        return read(_table(self.piece, roles.columns), roles)


def parquet_files(paths: Any, columns: Sequence[str]) -> tuple[File, ...]:
    """Return the Parquet files of a folder, a pattern, a file, or a list of these, in the order of their names.

    All must have the ``columns``, each of one kind.
    """
    found: list[str] = []
    for path in [paths] if isinstance(paths, str | Path) else list(paths):
        text = str(path)
        if has_magic(text) and not Path(text).exists():
            matching = sorted(glob(text, recursive=True))
            if not matching:
                raise InvalidInputError(f"{text}: no file matches this pattern.")
            found += matching
        elif Path(existing(path)).is_dir():
            inside = sorted(str(file) for file in Path(text).rglob("*.parquet"))
            if not inside:
                raise InvalidInputError(f"{text}: the folder has no .parquet file.")
            found += inside
        else:
            found.append(text)
    files: list[File] = []
    kinds: dict[str, tuple[str, str]] = {}
    for path in dict.fromkeys(found):
        with _opened(path) as file:
            known = file.schema_arrow
            Table(path, tuple(known.names), 0, lambda name: name).check_names(columns)
            for name in columns:
                kind = _kind(known.field(name).type)
                first, where = kinds.setdefault(name, (kind, path))
                if "missing" in (first, kind):
                    kinds[name] = (kind, path) if first == "missing" else (first, where)
                elif kind != first:
                    raise InvalidInputError(
                        f"{path}, column {name!r}: must be of the same kind in all files; it holds {kind}, and {first} in {where}."
                    )
            sizes = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
        files.append(File(path, files[-1].end if files else 0, tuple(np.cumsum([0, *sizes]).tolist())))
    if not files or files[-1].end == 0:
        raise InvalidInputError(f"{paths}: the files must have at least one row; they have none.")
    return tuple(files)


def _opened(path: str) -> Any:
    try:
        return pa.parquet.ParquetFile(existing(path))
    except CapiError:
        raise
    except Exception:  # the usual reader finds the words
        parquet_table(path, [])
        raise


def _kind(kind: Any) -> str:
    types = pa.types
    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    if types.is_null(kind):
        return "missing"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind):
        return "numbers"
    if types.is_string(kind) or types.is_large_string(kind):
        return "texts"
    return "dates" if types.is_temporal(kind) else str(kind)


# -- what the pieces hold ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Found:
    """What one look at a piece finds."""

    n_rows: int
    columns: dict[str, Values]
    episodes: NDArray[np.uint64]  # each once; without episodes empty
    first: Any = None  # the episode of the first row, of the last one,
    last: Any = None
    head: int = 0  # the number of rows at the beginning that belong to the first one,
    returns: bool = False  # and whether it comes back after them


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a column, as far as its encoding depends on them."""

    type: Any  # of Arrow
    counts: Counter[Any] = field(default_factory=Counter)
    has_missing: bool = False
    order: tuple[Any, ...] | None = None  # of ordered categories

    def merged(self, other: Values, name: str) -> Values:
        """Return the values of two pieces."""
        if self.order is not None and other.order is not None and self.order != other.order:
            raise InvalidInputError(f"column {name!r} must have the same ordered categories in all files.")
        kind = other.type if pa.types.is_null(self.type) else self.type
        return Values(
            kind, self.counts + other.counts, self.has_missing or other.has_missing, self.order or other.order
        )

    def table(self, name: str, most: int) -> Table:
        """Return a table of one column that is encoded as the whole one is: each value at most ``most`` times."""
        values = [value for value in self.counts for _ in range(min(self.counts[value], most))]
        if self.has_missing:
            values.append(None)
        if self.order is not None:
            at = {value: i for i, value in enumerate(self.order)}
            codes = pa.array([None if value is None else at[value] for value in values], pa.int32())
            array = pa.DictionaryArray.from_arrays(codes, pa.array(self.order), ordered=True)
        else:
            plain = self.type.value_type if pa.types.is_dictionary(self.type) else self.type
            array = pa.array(values, plain)
        return Table("the files", (name,), len(values), {name: pa.chunked_array([array])}.__getitem__)


def looked_at(piece: Any, roles: Mapping[str, Any]) -> Found:
    """Return what one look at a piece finds: its episodes, and the values on which encodings depend."""
    checked = Roles(**roles)
    known = checked.schema is not None
    listed = set() if known else {*checked.state, *(checked.next_state or ())}
    if not known and checked.action_labels is None:
        listed.add(checked.action)
    types = _types(piece, checked.columns)
    needed = [name for name in listed if _depends_on_values(types[name]) or name == checked.action]
    if checked.episode is not None:
        needed.append(checked.episode)
    table = piece.arrow(list(dict.fromkeys(needed)) or [checked.action])
    columns = {
        name: _values(table.column(name), types[name]) if name in needed else Values(types[name])
        for name in sorted(listed)
    }
    if checked.episode is None:
        return Found(table.num_rows, columns, np.empty(0, dtype=np.uint64))
    ids = _as_codes(table.column(checked.episode), checked.episode, piece)
    head = len(ids) if (ids == ids[0]).all() else int((ids != ids[0]).argmax())
    return Found(len(ids), columns, np.unique(ids), ids[0], ids[-1], head, bool((ids[head:] == ids[0]).any()))


def _types(piece: Any, names: Sequence[str]) -> dict[str, Any]:
    if isinstance(piece, ParquetRows):
        with _opened(piece._mine[0].path) as file:
            return {name: file.schema_arrow.field(name).type for name in names}
    table = piece.arrow(names)
    return {name: table.schema.field(name).type for name in names}


def _depends_on_values(kind: Any) -> bool:
    types = pa.types
    return not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _values(column: Any, kind: Any) -> Values:
    order = None
    if pa.types.is_dictionary(column.type):
        if column.type.ordered and column.num_chunks:
            order = tuple(column.chunk(0).dictionary.to_pylist())
        column = decoded(column)
    plain = nan_as_null(column)
    if pa.types.is_temporal(plain.type):
        known = plain.drop_null()
        few = [*pc.unique(known.slice(0, SAMPLED_DATES)).to_pylist(), pc.min(known).as_py(), pc.max(known).as_py()]
        return Values(kind, Counter(value for value in few if value is not None), plain.null_count > 0)
    counted = pc.value_counts(plain)
    counts = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    missing = counts.pop(None, 0)
    return Values(kind, Counter(counts), missing > 0, order)


def _as_codes(column: Any, name: str, piece: Any) -> NDArray[np.uint64]:
    """Return a number for each episode id (n,) that is the same in every piece."""
    if column.null_count:
        row = int(np.asarray(pc.is_null(column)).argmax())
        where = getattr(piece, "first_row", 0) + row
        raise InvalidInputError(
            f"{piece.name}, column {name!r}, row {where}: must not be missing: it says which episode a row belongs to."
        )
    if pa.types.is_integer(column.type):
        return codes_of(column.to_numpy())
    array = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return np.concatenate(
        [codes_of(chunk.dictionary.to_pylist())[chunk.indices.to_numpy(zero_copy_only=False)] for chunk in array.chunks]
    )


def learned_schema(found: Sequence[Found], roles: Roles) -> Schema:
    """Return the names, encodings and labels of all pieces together."""
    if roles.schema is not None:
        return roles.schema
    columns = dict(found[0].columns)
    for other in found[1:]:
        columns = {name: values.merged(other.columns[name], name) for name, values in columns.items()}
    following = dict(zip(roles.state, roles.next_state or (), strict=False))
    encoded: list[Column] = []
    for name in roles.state:
        values = columns[name]
        if name in following:
            values = values.merged(columns[following[name]], name)
        table = values.table(name, roles.min_category_rows)
        encoded.append(
            ordered_column(name, table, (), roles.ordered.get(name)) or learn(name, table, (), roles.min_category_rows)
        )
    labels = roles.action_labels
    if labels is None:
        table = columns[roles.action].table(roles.action, 1)
        rows = np.arange(table.n_rows - columns[roles.action].has_missing)
        labels = actions_of(roles.action, table, rows, None)[1]
    return Schema.of_columns(encoded, labels)


# -- whole episodes ----------------------------------------------------------------------------------


@dataclass
class _Borders:
    """The pieces while their borders move."""

    pieces: list[Any]
    found: list[Found]
    notes: list[str] = field(default_factory=list)

    def moved(self) -> None:
        """Give the rows of an episode that crosses a border to the piece in which it begins."""
        kept: list[tuple[Any, Found]] = []
        for piece, found in zip(self.pieces, self.found, strict=True):
            if kept and isinstance(piece, ParquetRows) and kept[-1][1].last == found.first:
                before, earlier = kept[-1]
                start, end = piece.spans[0]
                head = ParquetRows(piece.files, ((start, start + found.head),))
                kept[-1] = (before.joined(head), earlier)
                if start + found.head == end:
                    continue
                piece = ParquetRows(piece.files, ((start + found.head, end),))
                if not found.returns:
                    rest = found.episodes[found.episodes != found.first]
                    found = Found(found.n_rows - found.head, found.columns, rest, None, found.last)
            kept.append((piece, found))
        self.pieces, self.found = [piece for piece, _ in kept], [found for _, found in kept]

    def joined(self) -> None:
        """Put pieces together that share an episode."""
        owner = list(range(len(self.pieces)))

        def root(i: int) -> int:
            while owner[i] != i:
                i = owner[i]
            return i

        ids = np.concatenate([found.episodes for found in self.found])
        of_piece = np.repeat(np.arange(len(self.found)), [len(found.episodes) for found in self.found])
        order = np.argsort(ids, kind="stable")
        again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        for k in again.tolist():
            a, b = root(int(of_piece[order[k]])), root(int(of_piece[order[k + 1]]))
            owner[max(a, b)] = min(a, b)
        groups: dict[int, list[int]] = {}
        for i in range(len(owner)):
            groups.setdefault(root(i), []).append(i)
        largest = max(groups.values(), key=len)
        if len(largest) > MOST_TOGETHER:
            raise InvalidInputError(
                f"{self.pieces[largest[0]].name}: episodes must lie in few partitions; here some share {len(largest)} of them, which "
                "would have to be read as one. Sort the table by episode, or write one file per group of episodes."
            )
        joined = sum(len(group) > 1 for group in groups.values())
        if joined:
            self.notes.append(
                f"{joined} partitions were put together from up to {len(largest)}, because episodes come back in them: reading "
                "them takes as many times the memory."
            )
        pieces = []
        for group in groups.values():
            piece = self.pieces[group[0]]
            for i in group[1:]:
                piece = piece.joined(self.pieces[i])
            pieces.append(piece)
        self.pieces = pieces


def with_whole_episodes(pieces: Sequence[Any], found: Sequence[Found]) -> tuple[list[Any], list[str]]:
    """Return pieces with the same rows such that no episode lies in two of them, and remarks on what that costs."""
    borders = _Borders(list(pieces), list(found))
    borders.moved()
    borders.joined()
    return borders.pieces, borders.notes


def _table(piece: Any, names: Sequence[str]) -> Table:
    arrow = piece.arrow(names)
    return Table(piece.name, tuple(arrow.column_names), arrow.num_rows, arrow.column, getattr(piece, "first_row", 0))
