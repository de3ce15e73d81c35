"""Apply a saved policy to the rows of a table."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.late import pyarrow as pa
from capi._utils.threads import available_cores
from capi._utils.validation import Floats, Ints, first_line
from capi.data.readers.arrow import CsvFile, Table, parquet_table
from capi.data.readers.encode import encode
from capi.data.readers.pieces import ParquetRows, files_of, kind_of, parquet_files
from capi.data.rows import warn_of_unseen
from capi.data.schema import Schema
from capi.data.table_files import format_of, is_many
from capi.errors import InvalidInputError
from capi.files.atomic import encode_text, written_whole
from capi.files.csv_text import without_formulas, write_csv
from capi.files.policy_file import load_policy
from capi.policies import Deterministic
from capi.runs.fit import POLICY
from capi.types import Policy

DECISION = "decision"
ROWS_AT_ONCE = 2**18


def policy_of(run: str | Path) -> Policy:
    """Return the policy of a run folder or a policy file."""
    path = Path(run)
    return load_policy(path / POLICY if path.is_dir() else path)


def predict_table(
    run: str | Path, table: str | Path, out: str | Path, *, spreadsheet_safe: bool = False, random_state: int = 0
) -> int:
    """Write ``table`` with an added column ``decision`` to ``out``, and return its number of rows.

    A policy that draws its actions draws them with the seed ``random_state``.
    With ``spreadsheet_safe``, cells of a CSV file that spreadsheets would run as a formula begin with an apostrophe.
    """
    policy: Any = policy_of(run)
    if policy.schema is None:
        raise InvalidInputError(
            f"the policy of {run} cannot read a table: it was saved without column names. Learn it from a table."
        )
    source, target = Path(table), Path(out)
    _check_apart(source, target)
    if format_of(source, "the table") == format_of(target, "out", written=True) == "parquet":
        return _streamed(policy, source, target, random_state)
    frame, states, delimiter = _read(source, policy.schema)
    if DECISION in frame.column_names:
        raise InvalidInputError(f"{table} already has a column {DECISION!r}. Rename it first.")
    draws = None if isinstance(policy, Deterministic) else np.random.default_rng(random_state).random((len(states), 1))
    decided = _labels(policy.schema.action_labels).take(pa.array(_decisions(policy, states, draws)))
    decisions = frame.append_column(DECISION, decided)
    safe = spreadsheet_safe and format_of(target) == "csv"
    write_result(out, without_formulas(decisions) if safe else decisions, delimiter)
    return int(frame.num_rows)


def _check_apart(source: Path, target: Path) -> None:
    """Refuse a result that would replace a file of the table, or become one of its files."""
    many = is_many(source)
    files = [Path(path) for path in files_of(source)] if many else [source]
    for file in files:
        if target.exists() and file.exists() and target.samefile(file):
            raise InvalidInputError(f"{file} would be overwritten. Choose another --out.")
    place = target.resolve()
    inside = source.is_dir() and source.resolve() in place.parents and place.suffix == ".parquet"
    beside = not source.is_dir() and place.parent in {file.resolve().parent for file in files}
    if many and (inside or (beside and fnmatchcase(place.name, source.name))):
        raise InvalidInputError(
            f"--out must not be among the files of the table; {target} would become a part of {source}. Write it to another folder."
        )


def _streamed(policy: Any, source: Path, target: Path, random_state: int) -> int:
    """Decide for the rows of Parquet files block by block, so that they need not fit into memory; return their number."""
    schema, labels = policy.schema, _labels(policy.schema.action_labels)
    names = [column.name for column in schema.columns]
    files = parquet_files(source, names)
    written = _one_schema([file.path for file in files]).append(pa.field(DECISION, labels.type))
    if categories := [column for column in schema.columns if column.values]:
        rows = ParquetRows(files, ((0, files[-1].end),))
        warn_of_unseen(categories, rows.table([column.name for column in categories]))
    rng = None if isinstance(policy, Deterministic) else np.random.default_rng(random_state)

    def with_decisions(block: Any, path: str, first: int, draws: Floats | None) -> Any:
        table = pa.Table.from_batches([block])
        states = encode(schema.columns, Table(path, tuple(table.column_names), len(block), table.column, first))
        decided = table.append_column(DECISION, labels.take(pa.array(_decisions(policy, states, draws))))
        try:
            same = decided.column_names == written.names
            return (decided if same else decided.select(written.names)).cast(written)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidInputError(
                f"{path}: its columns must be of the same kind as in the other files: {first_line(error)}. Convert them."
            ) from error

    n = 0
    with written_whole(target) as place, ExitStack() as stack:
        pool, waiting = stack.enter_context(ThreadPoolExecutor(available_cores())), deque[Future[Any]]()
        writer: Any = stack.enter_context(pa.parquet.ParquetWriter(place, written))

        def write(until: int) -> None:
            while len(waiting) > until:
                writer.write_table(waiting.popleft().result())

        for path, *_ in files:
            with pa.parquet.ParquetFile(path) as opened:
                first = 1
                for block in opened.iter_batches(batch_size=ROWS_AT_ONCE):
                    draws = None if rng is None else rng.random((len(block), 1))
                    waiting.append(pool.submit(with_decisions, block, path, first, draws))
                    first, n = first + len(block), n + len(block)
                    write(2 * available_cores())
        write(0)
    return n


def _one_schema(paths: Sequence[str]) -> Any:
    """Return the columns of all files, in the order of the first one; numbers of different types become the wider one."""
    found = [pa.parquet.read_schema(path) for path in paths]
    first = found[0]
    for path, schema in zip(paths, found, strict=True):
        if DECISION in schema.names:
            raise InvalidInputError(f"{path} already has a column {DECISION!r}. Rename it first.")
        if sorted(schema.names) != sorted(first.names):
            other = sorted(set(schema.names) ^ set(first.names)) or schema.names
            raise InvalidInputError(
                f"{path}: must have the same columns as {paths[0]}; {other[0]!r} is only in one of them. Add the column, or remove it."
            )
    if len(set(first.names)) < len(first.names):
        return first
    fields = []
    for name in first.names:
        kinds = list(dict.fromkeys(schema.field(name).type for schema in found))
        if len(kinds) > 1:
            kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
        try:
            parts = [pa.schema([pa.field(name, kind)]) for kind in kinds]
            fields.append(pa.unify_schemas(parts, promote_options="permissive").field(0))
        except pa.ArrowException as error:
            here = first.field(name).type
            others = [(path, schema.field(name).type) for path, schema in zip(paths, found, strict=True)]
            different = [one for one in others if kind_of(one[1]) != kind_of(here)]
            path, there = (different or [one for one in others if one[1] != here])[0]
            raise InvalidInputError(
                f"{path}, column {name!r}: must be of the same kind everywhere; it holds {there}, but {here} in {paths[0]}. Convert one of them."
            ) from error
    return pa.schema(fields, metadata=first.metadata)


def write_result(out: str | Path, content: Any, delimiter: str = ",") -> None:
    """Write text, bytes or an Arrow table to a file atomically; ``delimiter`` separates the fields of a CSV file."""
    target = Path(out)
    is_table = not isinstance(content, str | bytes)
    as_csv = is_table and format_of(target, "out", written=True) == "csv"
    with written_whole(target) as place:
        if isinstance(content, str):
            encode_text(place, content + "\n")
        elif isinstance(content, bytes):
            place.write_bytes(content)
        elif as_csv:
            write_csv(content, place, delimiter)
        else:
            pa.parquet.write_table(content, place)


def _decisions(policy: Policy, states: Floats, draws: Floats | None) -> Ints:
    """Return the actions (n,); a policy that draws them does so with ``draws`` (n, 1) from [0, 1)."""
    if draws is None:
        return policy.act(states)
    chances = policy.probabilities(states).cumsum(axis=1)
    drawn = draws * chances[:, -1:]
    return np.minimum((drawn >= chances).sum(axis=1), policy.n_actions - 1)


def _labels(labels: Sequence[Any]) -> Any:
    """Return the labels as an Arrow array, as text if their types differ."""
    types = {type(label) for label in labels}
    return pa.array(list(labels) if len(types) == 1 else [str(label) for label in labels])


def _read(path: Path, schema: Schema) -> tuple[Any, Floats, str]:
    """Return the table unchanged, to be written again, the states of its rows encoded by ``schema``, and what separates fields."""
    names = [column.name for column in schema.columns]
    if format_of(path, "the table") == "csv":
        texts = [c.name for c in schema.columns if c.values and all(isinstance(value, str) for value in c.listed)]
        file = CsvFile.opened(path)
        typed = file.table(names, texts)
        states = encode(schema.columns, typed)
        warn_of_unseen(schema.columns, typed)
        return file.as_text(), states, file.delimiter
    typed = parquet_table(path, names)
    states = encode(schema.columns, typed)
    warn_of_unseen(schema.columns, typed)
    try:
        return pa.parquet.read_table(files_of(path) if is_many(path) else path), states, ","
    except (OSError, pa.ArrowException) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}.") from error
