"""Decisions of a kept policy for the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capi.errors import InvalidInput
from capi.files import result_folder, written_together
from capi.files.policy_file import load_policy
from capi.runs.running import POLICY
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
    frame = _frame(Path(table))
    if DECISION in frame.column_names:
        raise InvalidInput(f"{table} already has a column {DECISION!r}. Rename it first.")
    actions = policy.act(policy.schema.encode(frame))
    written(out, frame.append_column(DECISION, _labels(policy.schema.action_labels).take(_arrow(actions))))
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

            csv.write_csv(content, place)
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


def _frame(path: Path) -> Any:
    """Return a CSV or Parquet file as an Arrow table."""
    from pyarrow import ArrowInvalid, csv, parquet  # noqa: PLC0415  only those who have tables pay for Arrow

    if path.suffix.lower() not in READERS:
        raise InvalidInput(f"the table must be a .csv or .parquet file; got {str(path)!r}.")
    try:
        return csv.read_csv(path) if path.suffix.lower() == ".csv" else parquet.read_table(path)
    except (OSError, ArrowInvalid) as error:
        raise InvalidInput(f"{path} cannot be read: {error}.") from error
