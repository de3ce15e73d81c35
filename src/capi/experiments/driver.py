"""Runs an experiment and writes its results: records, table, claims and figures."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, TypeAlias

from capi._utils.validation import check_choice
from capi._utils.versions import versions
from capi.errors import InvalidInputError
from capi.experiments import NAMES
from capi.files.atomic import encode_text, result_folder, written_together
from capi.files.lock import locked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Size: TypeAlias = Literal["quick", "full"]
Record: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]

JOURNAL = ".unfinished-{size}.jsonl"  # one line per finished run; deleted when all runs are finished
LOCK = ".lock"  # suffix added to the name of the journal


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, paraphrased, and whether the numbers support it."""

    statement: str
    where: str  # in the paper
    holds: bool | None  # None if an experiment of this size cannot decide it
    numbers: dict[str, Any]


class Experiment(Protocol):
    """The interface that the three files of an experiment's folder provide together."""

    COLUMNS: Sequence[str]

    def settings(self, size: Size) -> Sequence[Mapping[str, Any]]:
        """Return the settings to run: a few minutes of work, or everything that the paper ran."""

    def run(self, setting: Mapping[str, Any]) -> Record:
        """Return the record of one setting."""

    def table(self, records: Sequence[Record]) -> list[Row]:
        """Return the numbers of the figures, one row per point."""

    def summary(self, rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
        """Return the title, headings and lines of a table for the terminal."""

    def figures(self, rows: Sequence[Row]) -> dict[str, Figure]:
        """Return the figures by file name."""

    def claims(self, records: Sequence[Record]) -> dict[str, Claim]:
        """Return the paper's claims with what the records say about them."""


@dataclass(frozen=True)
class Result:
    """The results of an experiment, and where they were written."""

    folder: Path
    title: str
    headings: list[str]
    lines: list[list[str]]
    claims: dict[str, Claim]
    figures: list[Path]


def load_experiment(name: str) -> Experiment:
    """Return the experiment called ``name``."""
    if name not in NAMES:
        raise InvalidInputError(f"the experiment must be one of {', '.join(NAMES)}; got {name!r}.")
    experiment: Any = import_module(f"capi.experiments.{name.replace('-', '_')}")
    return experiment


def reproduce(
    name: str,
    out: str | Path,
    size: Size = "quick",
    track: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Result:
    """Run all settings of experiment ``name`` and write its files to the folder ``out``.

    ``track`` wraps the sequence of settings to run, for example with a progress bar. Each finished run is saved
    immediately: after an interruption the same call resumes after the last finished run. Existing files of the same names are
    replaced, all together, after all settings have run.
    """
    check_choice(size, "size", ("quick", "full"))
    experiment = load_experiment(name)
    run = experiment.run  # imports happen before anything is written
    folder = result_folder(out)
    settings = [dict(setting) for setting in experiment.settings(size)]
    journal = folder / JOURNAL.format(size=size)
    records = _with_journal(journal, settings, run, track)
    rows, claims = experiment.table(records), experiment.claims(records)
    texts = {
        "records.jsonl": "".join(json.dumps(record) + "\n" for record in records),
        "table.csv": _csv(experiment.COLUMNS, rows),
        "claims.json": json.dumps(_plain({key: asdict(claim) for key, claim in claims.items()}), indent=2) + "\n",
    }
    figures = experiment.figures(rows)
    with written_together(folder, [*texts, *figures]) as places:
        for name, text in texts.items():
            encode_text(places[name], text)
        for name, figure in figures.items():
            figure.savefig(places[name], format="png", dpi=150, metadata={"Software": None})
    journal.unlink(missing_ok=True)
    return Result(folder, *experiment.summary(rows), claims, [folder / name for name in figures])


def _with_journal(
    journal: Path,
    settings: Sequence[Mapping[str, Any]],
    run: Callable[[Mapping[str, Any]], Record],
    track: Callable[[Sequence[Any]], Iterable[Any]],
) -> list[Record]:
    """Return the record of each setting, from the ``journal`` if it has one; otherwise run the setting and add its record."""
    keys = [json.dumps([setting, versions()], sort_keys=True) for setting in settings]
    finished = _finished(journal)
    missing = [i for i, key in enumerate(keys) if key not in finished]
    with _opened_alone(journal) as file:
        # Ends a line that an earlier process may have left incomplete.
        file.write("\n" if journal.stat().st_size else "")
        for i in track(missing):
            finished[keys[i]] = run(settings[i])
            file.write(json.dumps({"key": keys[i], "record": finished[keys[i]]}) + "\n")
            file.flush()
            os.fsync(file.fileno())
    return [finished[key] for key in keys]


@contextmanager
def _opened_alone(journal: Path) -> Iterator[TextIO]:
    """Open the ``journal`` for appending under a lock, because two processes in one folder would overwrite each other's work."""
    alone = locked(
        journal.with_name(journal.name + LOCK),
        lambda _: (
            f"another process is at work in {journal.parent}. Wait until it has finished, or choose another folder with --out."
        ),
    )
    try:
        file = journal.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InvalidInputError(f"{journal} cannot be written: {error.strerror}. Choose another folder.") from error
    with file, alone:
        yield file


def _plain(value: Any) -> Any:
    """Return ``value`` with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finished(journal: Path) -> dict[str, Record]:
    """Return the records in the journal by key; a line that a crash cut off is skipped."""
    found: dict[str, Record] = {}
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []:
        try:
            entry = json.loads(line)
            found[entry["key"]] = entry["record"]
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
    return found


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
