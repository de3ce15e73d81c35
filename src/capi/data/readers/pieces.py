"""Tables that are read piece by piece: files and frames, and the decisions of one piece of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob, has_magic
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from capi._utils.executors import Kept
from capi._utils.late import pyarrow as pa
from capi._utils.validation import first_line
from capi.data.readers.arrow import Table, parquet_table
from capi.data.readers.foreign import decoded
from capi.data.readers.read import Read, read
from capi.data.readers.roles import Roles
from capi.data.table_files import existing
from capi.errors import CapiError, InvalidInputError

MOST_REPEATED = 2  # times that a task of a Dask DataFrame is computed in one pass, before all partitions are kept


class Piece(Protocol):
    """Some rows of a table that does not fit into memory."""

    @property
    def name(self) -> str:
        """What errors call it."""

    def types(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the Arrow types of the named columns."""

    def table(self, names: Sequence[str]) -> Table:
        """Return the named columns; errors about them name the file or partition and the row in it."""

    def joined(self, other: Any) -> Piece:
        """Return the rows of both."""

    def divided(self, head: int, n_rows: int) -> tuple[Any, Any]:
        """Return the first rows of this piece, which has ``n_rows`` rows that follow each other, and the others."""


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
    def _mine(self) -> list[File]:
        return [file for file in self.files if any(a < file.end and file.first < b for a, b in self.spans)]

    def types(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the Arrow types of the named columns, in the first file that knows them."""
        found: dict[str, Any] = {}
        for file in self._mine:
            with _opened(file.path) as opened:
                for name in names:
                    kind = opened.schema_arrow.field(name).type
                    if pa.types.is_null(found.get(name, pa.null())):
                        found[name] = kind
        return found

    def table(self, names: Sequence[str]) -> Table:
        """Return the named columns; only row groups that hold some of the rows are read."""
        runs = [
            (file, max(a - file.first, 0), min(b - file.first, file.groups[-1]))
            for a, b in self.spans
            for file in self.files
            if a < file.end and file.first < b
        ]
        arrow = _concatenated([self._of_file(*run, names) for run in runs], self.name)
        places = [(file.path, low, high - low) for file, low, high in runs]
        return Table(self.name, tuple(arrow.column_names), arrow.num_rows, arrow.column, 1, _place_in(places, 1))

    def joined(self, other: ParquetRows) -> ParquetRows:
        """Return the rows of both, adjoining ones as one span."""
        spans: list[tuple[int, int]] = []
        for a, b in sorted(self.spans + other.spans):
            if spans and spans[-1][1] == a:
                spans[-1] = (spans[-1][0], b)
            else:
                spans.append((a, b))
        return ParquetRows(self.files, tuple(spans))

    def divided(self, head: int, n_rows: int) -> tuple[ParquetRows, ParquetRows]:
        """Return the first rows of this piece, which has ``n_rows`` rows that follow each other, and the others."""
        start = self.spans[0][0]
        first, rest = (start, start + head), (start + head, start + n_rows)
        return ParquetRows(self.files, (first,)), ParquetRows(self.files, (rest,))

    def _of_file(self, file: File, low: int, high: int, names: Sequence[str]) -> Any:
        groups = [g for g, (a, b) in enumerate(zip(file.groups, file.groups[1:], strict=False)) if a < high and low < b]
        try:
            with pa.parquet.ParquetFile(file.path) as opened:
                n_rows = opened.metadata.num_rows
                if n_rows == file.groups[-1]:
                    table = opened.read_row_groups(groups, columns=list(names), use_threads=False)
        except Exception as error:  # damaged files raise errors of many types
            raise InvalidInputError(f"{file.path}: cannot be read as Parquet: {first_line(error)}.") from error
        if n_rows != file.groups[-1]:
            raise InvalidInputError(
                f"{file.path}: must not change while it is used; it had {file.groups[-1]} rows and has {n_rows} now. Start again."
            )
        return table.slice(low - file.groups[groups[0]], high - low)


class FrameRows(NamedTuple):
    """Rows of a partition of a Dask DataFrame."""

    part: Any  # Delayed, or `Kept`
    number: int
    low: int = 0
    high: int | None = None
    size: int | None = None  # of the partition, if only some of its rows are meant

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"partition {self.number} of the Dask DataFrame"


@dataclass(frozen=True, eq=False)
class DaskFrame:
    """A partition of a Dask DataFrame, several, or rows of them."""

    rows: tuple[FrameRows, ...]

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The partitions that workers keep."""
        return tuple({rows.number: rows.part for rows in self.rows if isinstance(rows.part, Kept)}.values())

    @property
    def name(self) -> str:
        """What errors call it."""
        numbers = dict.fromkeys(rows.number for rows in self.rows)
        return " and ".join(f"partition {number}" for number in numbers) + " of the Dask DataFrame"

    def types(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the Arrow types of the named columns; the partitions are computed for that."""
        table = self.table(names)
        return {name: table.get(name).type for name in names}

    def table(self, names: Sequence[str]) -> Table:
        """Compute the partitions, and return the named columns."""
        tables, places, frames = [], [], {}
        for rows in self.rows:
            if rows.number not in frames:
                frames[rows.number] = _with_index(rows.part.compute(scheduler="synchronous"), names)
            frame = frames[rows.number]
            if rows.size not in (None, len(frame)):
                raise InvalidInputError(
                    f"{rows.name}: must not change while it is used; it had {rows.size} rows and has {len(frame)} now. Start again."
                )
            frame = frame.iloc[rows.low : rows.high]
            Table(rows.name, tuple(frame.columns), 0, lambda name: name).check_names(names)
            columns = Table(rows.name, tuple(frame.columns), len(frame), frame.__getitem__)
            tables.append(pa.table({column: columns.column(column) for column in names}))
            places.append((rows.name, rows.low, len(frame)))
        arrow = _concatenated(tables, self.name)
        return Table(self.name, tuple(arrow.column_names), arrow.num_rows, arrow.column, 0, _place_in(places, 0))

    def joined(self, other: DaskFrame) -> DaskFrame:
        """Return the rows of both."""
        return DaskFrame(self.rows + other.rows)

    def divided(self, head: int, n_rows: int) -> tuple[DaskFrame, DaskFrame]:
        """Return the first rows of this piece, which has ``n_rows`` rows of one partition, and the others."""
        part, number, low, _, size = self.rows[0]
        size = n_rows if size is None else size
        return tuple(  # type: ignore[return-value]
            DaskFrame((FrameRows(part, number, a, b, size),))
            for a, b in ((low, low + head), (low + head, low + n_rows))
        )


def _with_index(frame: Any, names: Sequence[str]) -> Any:
    """Return a frame whose index is a column if it is one of those that are needed and no column has its name."""
    needed = [name for name in frame.index.names if name in names and name not in frame.columns]
    return frame.reset_index(needed) if needed else frame


def dask_partitions(frame: Any, client: Any) -> list[DaskFrame]:
    """Return the partitions of a Dask DataFrame.

    They are computed when they are needed where each can be computed by itself. Those of a shuffled or persisted frame cannot, so the workers of the
    ``client``, or of the client of this process, keep them.
    """
    parts: list[Any] = list(frame.to_delayed())
    if client is None:
        with suppress(ImportError, ValueError):  # there is no client
            client = import_module("distributed").default_client()
    if client is not None and _needs_scheduler(parts):
        parts = [Kept(future) for future in client.compute(parts)]
    return [DaskFrame((FrameRows(part, i),)) for i, part in enumerate(parts)]


def _needs_scheduler(parts: Sequence[Any]) -> bool:
    """Return whether partitions are results that a cluster holds, or are made of most of the tasks of all others."""
    cull, tasks = import_module("dask.optimization").cull, {}
    for graph in {id(part.__dask_graph__()): part.__dask_graph__() for part in parts}.values():
        tasks.update(graph)
    kinds = {type(task).__name__ for task in tasks.values()}
    if any(kind == "Future" or "P2P" in kind for kind in kinds):
        return True
    n_tasks = 0
    for part in parts:
        n_tasks += len(cull(tasks, part.key)[0])
        if n_tasks > MOST_REPEATED * len(tasks):
            return True
    return False


def _concatenated(tables: Sequence[Any], name: str) -> Any:
    """Return one Arrow table; columns that are dictionaries in some of the tables only are decoded."""
    if len(tables) == 1:
        return tables[0]
    for column in tables[0].column_names:
        if len({str(table.schema.field(column).type) for table in tables}) > 1:
            tables = [
                table.set_column(table.column_names.index(column), column, decoded(table.column(column)))
                if pa.types.is_dictionary(table.schema.field(column).type)
                else table
                for table in tables
            ]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidInputError(f"{name}: its columns differ from file to file: {first_line(error)}.") from error


def _place_in(places: Sequence[tuple[str, int, int]], first: int) -> Callable[[int], tuple[str, int]]:
    """Return a function from a row of a piece to its file and its number there; ``places`` are names, first rows and numbers of rows."""
    ends = np.cumsum([n for _, _, n in places])

    def place(row: int) -> tuple[str, int]:
        i = int(np.searchsorted(ends, row, side="right"))
        name, low, n = places[i]
        return name, first + low + row - int(ends[i] - n)

    return place


@dataclass(frozen=True, eq=False)
class Decisions:
    """A piece, the roles of its columns, and how they are encoded: what a worker needs to read it."""

    piece: Any
    roles: Mapping[str, Any]

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The partitions of a Dask DataFrame that workers keep."""
        return getattr(self.piece, "kept", ())

    def read(self) -> Read:
        """Return the checked decisions of the piece."""
        roles = Roles(**self.roles)
        return read(self.piece.table(roles.columns), roles, whole=False)


def files_of(paths: Any) -> list[str]:
    """Return the Parquet files of a folder, a pattern, a file, or a list of these, in the order of their names."""
    found: list[str] = []
    given = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(given, Sequence) or not given or not all(isinstance(path, str | Path) for path in given):
        raise InvalidInputError(f"paths must be a file, a folder, a pattern, or a list of these; got {paths!r}.")
    for path in given:
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
    return list(dict.fromkeys(found))


def parquet_files(paths: Any, columns: Sequence[str], *, absolute: bool = False) -> tuple[File, ...]:
    """Return the Parquet files of a folder, a pattern, a file, or a list of these, in the order of their names.

    All must have the ``columns``, each of one kind. With ``absolute`` paths, processes in other folders find them, too.
    """
    files: list[File] = []
    kinds: dict[str, tuple[str, str]] = {}
    for path in files_of(paths):
        with _opened(path) as file:
            known = file.schema_arrow
            Table(path, tuple(known.names), 0, lambda name: name).check_names(columns)
            for name in columns:
                kind = kind_of(known.field(name).type)
                kinds[name] = same_kind(name, kinds.get(name), (kind, path))
            sizes = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
        if sum(sizes):
            path = str(Path(path).absolute()) if absolute else path
            files.append(File(path, files[-1].end if files else 0, tuple(np.cumsum([0, *sizes]).tolist())))
    if not files:
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


def same_kind(name: str, known: tuple[str, str] | None, found: tuple[str, str]) -> tuple[str, str]:
    """Return the kind of a column, and a file that has it; refuse a ``found`` one that is not the ``known`` one."""
    if known is None or known[0] == "missing":
        return found
    if found[0] not in ("missing", known[0]):
        raise InvalidInputError(
            f"{found[1]}, column {name!r}: must be of the same kind everywhere; it holds {found[0]}, but {known[0]} in {known[1]}. Convert "
            "one of them."
        )
    return known


def kind_of(kind: Any) -> str:
    """Return what a column of an Arrow type holds, in words."""
    types = pa.types
    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    for name, holds in (
        ("missing", types.is_null),
        ("booleans", types.is_boolean),
        ("numbers", lambda t: types.is_integer(t) or types.is_floating(t) or types.is_decimal(t)),
        ("texts", lambda t: types.is_string(t) or types.is_large_string(t) or types.is_string_view(t)),
        ("dates with a time zone", lambda t: types.is_timestamp(t) and t.tz is not None),
        ("dates", lambda t: types.is_timestamp(t) or types.is_date(t)),
    ):
        if holds(kind):
            return name
    return str(kind)
