"""Runs an experiment and writes its results: records, table, claims and figures."""

from __future__ import annotations

import csv
import difflib
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from capi._utils.validation import as_int, check_choice
from capi.errors import CapiError, InvalidInputError
from capi.experiments.experiment import SIZES, Claim, Experiment, Record, Row, load_experiment
from capi.experiments.records import FOLDER, Records, flat, is_finished, key_of, without_timings
from capi.experiments.runner import Progress, Task, run_tasks
from capi.experiments.setting import Setting, Size
from capi.experiments.worker import code_of, plain
from capi.files.atomic import encode_text, result_folder, written_together

MOST_SUGGESTIONS = 5  # names of settings in an error message


@dataclass(frozen=True)
class Result:
    """The results of an experiment, and where they were written."""

    folder: Path
    title: str
    headings: list[str]
    lines: list[list[str]]
    claims: dict[str, Claim]
    figures: list[Path]
    failed: list[Record]
    n_finished: int
    n_other_code: int  # finished runs that another state of the code has computed


def reproduce(
    experiment: str | Experiment,
    out: str | Path,
    size: Size = "quick",
    *,
    runs: int | None = None,
    jobs: int = -1,
    executor: Any = None,
    report: Callable[[Progress], object] = lambda _: None,
) -> Result:
    """Run all settings of an experiment and write its files to the folder ``out``.

    Each finished run is saved immediately and never computed again: after an interruption the same call continues with the
    rest, and several processes may work in the same folder. A run that fails is saved with its traceback and does not stop
    the others; the next call tries it again. Table, claims and figures are written, all together, from what is finished.

    Parameters
    ----------
    experiment : str or Experiment
        The name of an experiment, or a module that has what `capi.experiments.experiment.Experiment` lists.
    out : str or Path
        Folder of the results.
    size : "quick" or "full"
        A few minutes of work, or everything that the paper ran.
    runs : int, optional
        Number of seeds, by default those of the size. With 0 nothing is run: the files are written from all finished runs.
    jobs : int
        Number of runs at the same time, -1 for one per core. Results do not depend on it.
    executor : concurrent.futures.Executor, dask.distributed.Client or name of a joblib backend, optional
        Where the runs are computed instead of processes of this machine. Results do not depend on it.
    report : callable
        Called with a `capi.experiments.runner.Progress` whenever something has happened.
    """
    check_choice(size, "size", SIZES)
    n_runs = None if runs is None else as_int(runs, "runs", minimum=0)
    loaded = load_experiment(experiment) if isinstance(experiment, str) else experiment
    folder = result_folder(out)
    records = Records(folder / FOLDER)
    settings = loaded.settings(size)
    only_seed = loaded.SEEDS["full"] == 1  # nothing is random, so more seeds would repeat it
    n_seeds = loaded.SEEDS[size] if n_runs is None or (only_seed and n_runs) else n_runs
    tasks = [Task(loaded, setting, seed, records) for seed in range(n_seeds) for setting in settings]
    if tasks:
        run_tasks(tasks, jobs=jobs, executor=executor, report=report)
    places = {key_of(setting.values): i for i, setting in enumerate(settings)}
    found = [
        record for record in records if key_of(record["values"]) in places and (not tasks or record["seed"] < n_seeds)
    ]
    found.sort(key=lambda record: (record["seed"], places[key_of(record["values"])]))
    return _written(loaded, folder, found)


@dataclass(frozen=True)
class Recomputed:
    """A record that was computed alone, and how it compares with the one that it replaces."""

    record: Record
    former: Record | None  # None if there was none, or its run had failed
    differences: list[str]  # names of results that differ, timings aside


def recompute(
    experiment: str | Experiment,
    out: str | Path,
    setting: str,
    seed: int,
    *,
    report: Callable[[Progress], object] = lambda _: None,
) -> Recomputed:
    """Compute one record, whether or not it exists, and put it in the place of the former one.

    If the run fails, a finished record stays.

    Parameters
    ----------
    experiment, out, report
        As in `reproduce`.
    setting : str
        The name of a setting of either size.
    seed : int
        The seed, from 0.
    """
    loaded = load_experiment(experiment) if isinstance(experiment, str) else experiment
    chosen = _named(setting, [one for size in SIZES for one in loaded.settings(size)])
    number = as_int(seed, "the seed", minimum=0)
    records = Records(result_folder(out) / FOLDER)
    former = records.find(chosen, number)
    with tempfile.TemporaryDirectory() as place:
        alone = Records(place)
        run_tasks([Task(loaded, chosen, number, alone)], jobs=1, report=report)
        [record] = alone
    if is_finished(record) or not is_finished(former):
        records.add(record)
    if former is None or not is_finished(former) or not is_finished(record):
        return Recomputed(record, None, [])
    old, new = without_timings(former), without_timings(record)
    differing = [name for name in {**old, **new} if name not in old or name not in new or old[name] != new[name]]
    return Recomputed(record, former, differing)


def _named(name: str, settings: Sequence[Setting]) -> Setting:
    by_name = {setting.name: setting for setting in settings}
    if name not in by_name:
        close = (
            difflib.get_close_matches(name, by_name, MOST_SUGGESTIONS, cutoff=0.3) or list(by_name)[:MOST_SUGGESTIONS]
        )
        raise InvalidInputError(
            f"the experiment has {len(by_name)} settings, but none called {name!r}. Close to it: {', '.join(close)}."
        )
    return by_name[name]


def _written(experiment: Experiment, folder: Path, records: Sequence[Record]) -> Result:
    """Write table, claims and figures of the records whose runs did not fail."""
    finished = [flat(record) for record in records if is_finished(record)]
    failed = [record for record in records if not is_finished(record)]
    if not finished:
        why = (
            f"all {len(failed)} runs failed, the first with:\n{failed[0]['error']}" if failed else "no run is finished."
        )
        raise CapiError(f"there are no results in {folder}: {why}")
    rows, claims = experiment.table(finished), experiment.claims(finished)
    texts = {
        "table.csv": _csv(experiment.COLUMNS, rows),
        "claims.json": json.dumps(plain({key: asdict(claim) for key, claim in claims.items()}), indent=2) + "\n",
    }
    figures = experiment.figures(rows)
    with written_together(folder, [*texts, *figures]) as places:
        for name, text in texts.items():
            encode_text(places[name], text)
        for name, figure in figures.items():
            figure.savefig(places[name], format="png", dpi=150, metadata={"Software": None})
    code = code_of(experiment.run.__module__)
    n_other = sum(is_finished(record) and record["run"]["code"] != code for record in records)
    paths = [folder / name for name in figures]
    return Result(folder, *experiment.summary(rows), claims, paths, failed, len(finished), n_other)


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
