"""Decisions of a kept policy for the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capi._utils.validation import Floats
from capi.data.schema import Schema
from capi.errors import InvalidInput
from capi.files import result_folder, written_together
from capi.files.policy_file import load_policy
from capi.runs.fit import POLICY
from capi.runs.settings import READERS
from capi.types import Policy

DECISION = "decision"


def policy_of(run: str | Path) -> Policy:
    """Return the policy of a run's folder, or of a policy file."""
    path = Path(run)
    return load_policy(path / POLICY if path.is_dir() else path)


def predict_table(run: str | Path, table: str | Path, out: str | Path) -> int:
    """Write ``table`` with the column ``decision`` to ``out``, and return how many rows there are."""
    policy: Any = policy_of(run)
    if policy.schema is None:
        raise InvalidInput(f"the policy of {run} does not know the names of its columns, so it cannot read a table.")
    source, target = Path(table), Path(out)
    if target.exists() and source.exists() and target.samefile(source):
        raise InvalidInput(f"{table} would be replaced by its decisions. Choose another --out.")
    frame, states = _read(source, policy.schema)
    if DECISION in frame.column_names:
        raise InvalidInput(f"{table} already has a column {DECISION!r}. Rename it first.")
    decided = _labels(policy.schema.action_labels).take(_arrow(policy.act(states)))
    written(out, frame.append_column(DECISION, decided))
    return int(frame.num_rows)


def written(out: str | Path, content: Any) -> None:
    """Write text, bytes or an Arrow table to a file, which appears whole or not at all."""
    target = Path(out)
    is_table = not isinstance(content, str | bytes)
    if is_table and target.suffix.lower() not in READERS:
        raise InvalidInput(f"out must be a .csv or .parquet file; got {str(out)!r}.")
    with written_together(result_folder(target.parent), [target.name]) as places:
        place = places[target.name]
        if isinstance(content, str):
            place.write_text(content + "\n", encoding="utf-8", newline="\n")
        elif isinstance(content, bytes):
            place.write_bytes(content)
        elif target.suffix.lower() == ".csv":
            from pyarrow import csv  # noqa: PLC0415  only those who have tables pay for Arrow

            csv.write_csv(content, place, csv.WriteOptions(quoting_style="needed"))
        else:
            from pyarrow import parquet  # noqa: PLC0415

            parquet.write_table(content, place)


def _labels(labels: Sequence[Any]) -> Any:
    """Return the labels as an Arrow array; as text if they are of several kinds."""
    kinds = {type(label) for label in labels}
    return _arrow(list(labels) if len(kinds) == 1 else [str(label) for label in labels])


def _arrow(values: Any) -> Any:
    from pyarrow import array  # noqa: PLC0415  only those who have tables pay for Arrow

    return array(values)


def _read(path: Path, schema: Schema) -> tuple[Any, Floats]:
    """Return a table as it is, to be written again, and the states of its rows in the encodings of ``schema``."""
    from pyarrow import ArrowException, parquet  # noqa: PLC0415  only those who have tables pay for Arrow

    from capi.data.readers.arrow import csv_as_text, csv_table, parquet_table  # noqa: PLC0415
    from capi.data.readers.encode import encode  # noqa: PLC0415

    names = [column.name for column in schema.columns]
    if path.suffix.lower() == ".csv":
        texts = [c.name for c in schema.columns if c.values and all(isinstance(value, str) for value in c.values)]
        typed = csv_table(path, names, ",", texts)
        return csv_as_text(path), encode(schema.columns, typed)
    if path.suffix.lower() not in READERS:
        raise InvalidInput(f"the table must be a .csv or .parquet file; got {str(path)!r}.")
    typed = parquet_table(path, names)
    try:
        return parquet.read_table(path), encode(schema.columns, typed)
    except (OSError, ArrowException) as error:
        raise InvalidInput(f"{path} cannot be read: {error}.") from error
