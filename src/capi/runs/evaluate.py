"""Evaluate the policy of a run on episodes that it was not learned from."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from capi.data.learned_episodes import KnownShare, Learned, LearnedEpisodes
from capi.data.partitions import PartitionedTransitions
from capi.data.readers.arrow import csv_table, parquet_table
from capi.data.readers.encode import unknown_shares
from capi.data.schema import Schema
from capi.data.table_files import file_name, format_of, is_there
from capi.data.transitions import Transitions
from capi.errors import NEGLIGIBLE, Caveat, EvidenceWarning, InvalidInputError
from capi.files.archive import read_archive
from capi.files.atomic import write_text
from capi.files.exports.program import program_of
from capi.offline import Evidence, cross_evaluate, evaluate
from capi.policies import described
from capi.runs import select
from capi.runs.checkpoint import MOST_BYTES
from capi.runs.fit import EVALUATION, POLICY, VALUES, RunResult, digest, load_run
from capi.runs.secret import read_secret
from capi.runs.table import is_large
from capi.types import Policy


def evaluate_run(
    run: str | Path,
    table: str | Path | None = None,
    *,
    folds: int | None = None,
    executor: Any = None,
    shown: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    **settings: Any,
) -> Evidence:
    """Estimate the value of a run's policy, and save the estimates in the run folder as ``evaluation.json``.

    Parameters
    ----------
    run : str or Path
        Folder of a finished run.
    table : str or Path, optional
        Other episodes, with the same columns as the run's table. By default the episodes that the run held out.
    folds : int, optional
        Cross-evaluate instead: split the run's table into this many folds, refit the learner without each fold, and evaluate on it.
    executor : concurrent.futures.Executor, dask.distributed.Client or name of a joblib backend, optional
        Where the refits run. Without ``folds``, the Dask cluster that evaluates a table part by part.
    shown : callable
        Wraps the folds, for a progress bar.
    settings : further keywords
        As in `capi.offline.evaluate`. Caveats are in the result; they are not issued as Python warnings.
    """
    result = load_run(run)
    mine = result.settings
    schema = getattr(result.policy, "schema", None)  # of the file, which may be older than today's encodings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        if folds is not None:
            if table is not None:
                raise InvalidInputError(
                    "table and folds cannot be combined: folds are parts of the run's own table. Give one of them."
                )
            batch = mine.read(mine.table)
            found = cross_evaluate(mine.learner(), batch, n_folds=folds, executor=executor, shown=shown, **settings)
        elif table is not None:
            rows = mine.read_all(table, schema, executor)
            policy = informed(result, learned_episodes(result, table, rows))
            found = evaluate(policy, rows, **{"discount": mine.discount, **settings})
            found = replace(found, warnings=(*_unknown(Path(table), schema, result.policy), *found.warnings))
        elif mine.hold_out:
            policy = informed(result, learned_episodes(result, None, None))
            found = evaluate(policy, mine.all_held_out(schema, executor), **{"discount": mine.discount, **settings})
            found = replace(found, kind="held-out", is_behaviour=select.returned_behaviour(result.folder))
        else:
            raise InvalidInputError(
                f"a policy must be evaluated on episodes that it was not learned from; {run} learned from its whole table. "
                "Give a TABLE of other episodes, or --folds 5 to refit without each fifth, or hold episodes out in fit (--hold-out 0.3)."
            )
    assert isinstance(found, Evidence)  # noqa: S101  one learner gives one Evidence
    if folds is not None and is_large(mine.table):
        found = replace(found, source=f"a sample of the episodes of {file_name(mine.table)}")
    found = replace(found, is_cost=bool(mine.roles.get("cost")))
    record = {**found.to_dict(), "policy": digest(result.folder / POLICY)}
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(result.folder / EVALUATION, text + "\n")
    return found


def informed(result: RunResult, episodes: Learned | None) -> Policy:
    """Return the run's policy with what is known about its learning episodes."""
    policy: Any = result.policy
    if episodes is None or getattr(policy, "training", None) is None:
        return result.policy
    return described(policy, policy.schema, replace(policy.training, episodes=episodes))


def learned_episodes(
    result: RunResult, table: str | Path | None, batch: Transitions | PartitionedTransitions | None
) -> Learned | None:
    """Return the learning episodes of a run, to be recognised in ``batch``, which was read from ``table``; None for the held-out episodes.

    They are read again if their table is unchanged; otherwise the run's secret has those of two or more rows.
    """
    mine, secret = result.settings, read_secret(result.folder)
    then = _values_table(result.folder) if secret is None else secret.table
    sealed = None if secret is None else secret.episodes
    if not is_there(mine.table) or digest(mine.table) != then:
        return sealed
    if table is None or batch is None:
        return KnownShare(0.0)
    if digest(table) == then:
        if isinstance(batch, PartitionedTransitions):  # whose episodes are held out one by one, with that probability
            return KnownShare(1 - mine.hold_out)
        return KnownShare(mine.n_learned(batch) / batch.n_episodes)
    return LearnedEpisodes.of(mine.batch(batch.schema))


def _values_table(folder: Path) -> Any:
    """Return the digest of the table of a run without a secret, from an earlier version, or None."""
    try:
        return read_archive(folder / VALUES, MOST_BYTES)[0].get("table")
    except InvalidInputError:
        return None


def _unknown(table: Path, schema: Schema | None, policy: Any) -> list[Caveat]:
    """Return caveats about categories that the policy does not know and treats as missing.

    They are severe if the policy uses the column, and if they are more than a few.
    """
    categories = [column for column in schema.columns if column.values] if schema is not None else []
    if not categories:
        return []
    names = [column.name for column in categories]
    found = csv_table(table, names) if format_of(table) == "csv" else parquet_table(table, names)
    rest = "of the values are unknown to the policy, which treats them as missing. Check the spelling, or learn from such cases."
    used = _used_columns(policy)
    return [
        Caveat(
            "unknown-categories",
            f"column {name}: {100 * share:.2g} % {rest}",
            "severe" if share > NEGLIGIBLE and (used is None or name in used) else "warning",
            column=name,
            count=round(share * found.n_rows),
            share=share,
            text_without_counts=f"column {name}: some {rest}",
        )
        for name, share in unknown_shares(categories, found).items()
    ]


def _used_columns(policy: Any) -> set[str] | None:
    """Return the names of the columns that a policy's decisions depend on, or None if they cannot be read from it."""
    program = None if getattr(policy, "masked", False) else program_of(policy)
    return None if program is None else {program.features[j].column.name for j in program.used}
