"""Run an experiment and write what came out: records, table, claims and figures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from capi.errors import InvalidInput
from capi.experiments import NAMES
from capi.files import result_folder, written_together

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, in our words, and whether the numbers bear it out."""

    statement: str
    where: str  # in the paper
    holds: bool
    numbers: dict[str, Any]


class Experiment(Protocol):
    """What the three files of an experiment's folder offer together."""

    SETTINGS: Sequence[Mapping[str, Any]]
    COLUMNS: Sequence[str]

    def run(self, setting: Mapping[str, Any]) -> Record:
        """Return the record of one setting."""

    def table(self, records: Sequence[Record]) -> list[Row]:
        """Return the numbers of the figures, one row a point."""

    def summary(self, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
        """Return the table's headings and lines for a terminal."""

    def figures(self, rows: Sequence[Row]) -> dict[str, Figure]:
        """Return the figures by file name."""

    def claims(self, records: Sequence[Record]) -> dict[str, Claim]:
        """Return the paper's sentences with what the records say about them."""


@dataclass(frozen=True)
class Result:
    """What an experiment found, and where it was written."""

    folder: Path
    headings: list[str]
    lines: list[list[str]]
    claims: dict[str, Claim]
    figures: list[Path]


def load_experiment(name: str) -> Experiment:
    """Return the experiment called ``name``."""
    if name not in NAMES:
        raise InvalidInput(f"there is no experiment {name!r}; there are: {', '.join(NAMES)}.")
    experiment: Any = import_module(f"capi.experiments.{name}")
    return experiment


def reproduce(name: str, out: str | Path, track: Callable[[Sequence[Any]], Iterable[Any]] = iter) -> Result:
    """Run all settings of experiment ``name`` and write its files to the folder ``out``.

    ``track`` wraps the sequence of settings, for a progress bar. Existing files of the same names are
    replaced, all together, after all settings have run.
    """
    experiment = load_experiment(name)
    folder = result_folder(out)
    records = [experiment.run(setting) for setting in track(list(experiment.SETTINGS))]
    rows, claims = experiment.table(records), experiment.claims(records)
    texts = {
        "records.jsonl": "".join(json.dumps(record) + "\n" for record in records),
        "table.csv": _csv(experiment.COLUMNS, rows),
        "claims.json": json.dumps({key: asdict(claim) for key, claim in claims.items()}, indent=2) + "\n",
    }
    figures = experiment.figures(rows)
    with written_together(folder, [*texts, *figures]) as places:
        for name, text in texts.items():
            places[name].write_text(text, encoding="utf-8", newline="\n")
        for name, figure in figures.items():
            figure.savefig(places[name], format="png", dpi=150, metadata={"Software": None})
    return Result(folder, *experiment.summary(rows), claims, [folder / name for name in figures])


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
