"""Apply a saved policy to the rows of a table."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from capi._utils.late import pyarrow as pa
from capi._utils.threads import available_cores
from capi._utils.validation import Floats, Ints
from capi.data.readers.arrow import CsvFile, Table, parquet_table
from capi.data.readers.encode import encode
from capi.data.readers.pieces import parquet_files
from capi.data.rows import warn_of_unseen
from capi.data.schema import Schema
from capi.data.table_files import format_of
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
    if target.exists() and source.exists() and target.samefile(source):
        raise InvalidInputError(f"{table} would be overwritten. Choose another --out.")
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


def _streamed(policy: Any, source: Path, target: Path, random_state: int) -> int:
    """Decide for the rows of Parquet files block by block, so that they need not fit into memory; return their number."""
    schema, labels = policy.schema, _labels(policy.schema.action_labels)
    names = [column.name for column in schema.columns]
    files = parquet_files(source, names)
    if categories := [column for column in schema.columns if column.values]:
        warn_of_unseen(categories, parquet_table(source, [column.name for column in categories]))
    rng = None if isinstance(policy, Deterministic) else np.random.default_rng(random_state)

    def with_decisions(block: Any, path: str, first: int, draws: Floats | None) -> Any:
        table = pa.Table.from_batches([block])
        states = encode(schema.columns, Table(path, tuple(table.column_names), len(block), table.column, first))
        return table.append_column(DECISION, labels.take(pa.array(_decisions(policy, states, draws))))

    n = 0
    with written_whole(target) as place, ExitStack() as stack:
        pool, waiting = stack.enter_context(ThreadPoolExecutor(available_cores())), deque[Future[Any]]()
        writer: Any = None

        def write(until: int) -> None:
            nonlocal writer
            while len(waiting) > until:
                decided = waiting.popleft().result()
                if writer is None:
                    writer = stack.enter_context(pa.parquet.ParquetWriter(place, decided.schema))
                writer.write_table(decided if decided.schema == writer.schema else decided.cast(writer.schema))

        for path, *_ in files:
            with pa.parquet.ParquetFile(path) as opened:
                if DECISION in opened.schema_arrow.names:
                    raise InvalidInputError(f"{path} already has a column {DECISION!r}. Rename it first.")
                first = 1
                for block in opened.iter_batches(batch_size=ROWS_AT_ONCE):
                    draws = None if rng is None else rng.random((len(block), 1))
                    waiting.append(pool.submit(with_decisions, block, path, first, draws))
                    first, n = first + len(block), n + len(block)
                    write(2 * available_cores())
        write(0)
    return n


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
        return pa.parquet.read_table(path), states, ","
    except (OSError, pa.ArrowException) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}.") from error
