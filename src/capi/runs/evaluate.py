"""What the policy of a run is worth, on episodes that it has not seen."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from capi.data.readers.arrow import csv_table, parquet_table
from capi.data.readers.encode import unknown_shares
from capi.data.schema import Schema
from capi.data.table_files import format_of
from capi.errors import Caveat, EvidenceWarning, InvalidInputError
from capi.files.atomic import write_text
from capi.offline import Evidence, cross_evaluate, evaluate
from capi.runs.fit import EVALUATION, POLICY, digest, load_run


def evaluate_run(
    run: str | Path,
    table: str | Path | None = None,
    *,
    folds: int | None = None,
    shown: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    **settings: Any,
) -> Evidence:
    """Estimate what a run's policy is worth, and keep it in the run's folder as ``evaluation.json``.

    Parameters
    ----------
    run : str or Path
        Folder of a finished run.
    table : str or Path, optional
        Decisions on other episodes, in the columns of the run's table. By default the episodes that the run held out.
    folds : int, optional
        Instead: fit the run's learner anew without each of so many parts of its table, and evaluate it on that part.
    shown : callable
        Wraps the folds, for a progress bar.
    settings : further keywords
        As in `capi.offline.evaluate`. What speaks against the estimates is in the result, not among Python's warnings.
    """
    result = load_run(run)
    mine = result.settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        if folds is not None:
            if table is not None:
                raise InvalidInputError("a table and folds exclude each other: folds are parts of the run's own table.")
            batch = mine.read(mine.table)
            found = cross_evaluate(mine.learner(), batch, n_folds=folds, shown=shown, **settings)
        elif table is not None:
            schema = getattr(result.policy, "schema", None)
            found = evaluate(result.policy, mine.read(table, schema), **{"discount": mine.discount, **settings})
            found = replace(found, warnings=(*_unknown(Path(table), schema), *found.warnings))
        elif mine.hold_out:
            found = evaluate(result.policy, mine.held_out(), **{"discount": mine.discount, **settings})
            found = replace(found, kind="held-out")
        else:
            raise InvalidInputError(
                f"the policy of {run} was learned from all episodes of its table, and must be evaluated on others: give a TABLE of them, "
                "or --folds 5 to learn again without each fifth, or hold episodes out when you fit (--hold-out 0.3)."
            )
    assert isinstance(found, Evidence)  # noqa: S101  one learner, one evidence
    record = {**found.to_dict(), "policy": digest(result.folder / POLICY)}
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(result.folder / EVALUATION, text + "\n")
    return found


def _unknown(table: Path, schema: Schema | None) -> list[Caveat]:
    """Return what to say about categories that the policy has never seen, and takes for missing values."""
    categories = [column for column in schema.columns if column.values] if schema is not None else []
    if not categories:
        return []
    names = [column.name for column in categories]
    found = csv_table(table, names, ",") if format_of(table) == "csv" else parquet_table(table, names)
    rest = "of the values are unknown to the policy, which takes them for missing. Check the spelling, or learn from such cases."
    return [
        Caveat(
            "unknown-categories",
            f"column {name}: {100 * share:.2g} % {rest}",
            "severe",
            column=name,
            count=round(share * found.n_rows),
            share=share,
            text_without_counts=f"column {name}: some {rest}",
        )
        for name, share in unknown_shares(categories, found).items()
    ]
