"""An experiment at a glance: its verdicts, which seeds ran, and what the runs cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capi.experiments import NAMES
from capi.experiments.comparison import Verdict
from capi.experiments.experiment import SIZES, Claim, Record, Row, load_experiment
from capi.experiments.records import FOLDER, Records, flat, is_finished, key_of
from capi.experiments.sentences import Judgement, judgements
from capi.experiments.setting import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICTS: tuple[Verdict, ...] = ("holds", "holds in part", "fails", "open")


@dataclass(frozen=True)
class Group:
    """How far the runs of a group of settings are."""

    name: str
    n_settings: int
    n_records: int
    seeds: tuple[int, ...]  # with which all settings of the group are finished


@dataclass(frozen=True)
class Cost:
    """What the finished runs cost, and what those of the full size would."""

    n_runs: int
    cpu_hours: float
    hours: float  # the sum over runs, several of which may have run at the same time
    full_runs: int
    full_cpu_hours: float  # from the mean of each setting's runs; without the settings that were never run
    n_unknown: int  # settings of the full size that were never run


@dataclass(frozen=True)
class Overview:
    """All that a page shows about an experiment."""

    name: str
    title: str
    judgements: list[Judgement]
    claims: Mapping[str, Claim]
    rows: list[Row]
    summary: tuple[str, list[str], list[list[str]]]
    groups: list[Group]
    cost: Cost
    made_by: dict[str, int]  # number of runs by version of the package and kind of processor

    def figures(self) -> dict[str, Figure]:
        """Return the figures by file name."""
        return load_experiment(self.name).figures(self.rows)

    def n_verdicts(self) -> dict[Verdict, int]:
        """Return how many sentences have each verdict."""
        found = [one.verdict for one in self.judgements]
        return {verdict: found.count(verdict) for verdict in VERDICTS}


def overview(name: str, folder: str | Path) -> Overview | None:
    """Return the overview of the records of an experiment in its folder; None if no run is finished."""
    experiment = load_experiment(name)
    known = {key_of(s.values): s for size in reversed(SIZES) for s in experiment.settings(size)}
    places = {key: place for place, key in enumerate(known)}
    records = [r for r in Records(Path(folder) / FOLDER) if is_finished(r) and key_of(r["values"]) in known]
    if not records:
        return None
    records.sort(key=lambda r: (r["seed"], places[key_of(r["values"])]))
    results = [flat(r) for r in records]
    claims, rows = experiment.claims(results), experiment.table(results)
    by_group = sorted(rows, key=lambda row: str(row.get("group", "")))
    return Overview(
        name,
        NAMES[name],
        judgements(name, claims),
        claims,
        rows,
        experiment.summary(by_group),
        _groups(known.values(), records),
        _cost(experiment.settings("full"), experiment.SEEDS["full"], records),
        dict(Counter(f"capi {r['run']['versions']['capi']} on {r['run']['processor']}" for r in records)),
    )


def _groups(settings: Iterable[Setting], records: Sequence[Record]) -> list[Group]:
    """Return the groups that have records."""
    members: dict[str, list[str]] = {}
    for setting in settings:
        members.setdefault(setting.name.partition("/")[0], []).append(key_of(setting.values))
    finished: dict[str, set[int]] = {}
    for record in records:
        finished.setdefault(key_of(record["values"]), set()).add(record["seed"])
    found = []
    for name, keys in members.items():
        seeds = [finished.get(key, set()) for key in keys]
        if any(seeds):
            complete = set.intersection(*(one for one in seeds))
            found.append(Group(name, len(keys), sum(map(len, seeds)), tuple(sorted(complete))))
    return found


def _cost(settings: Sequence[Setting], n_seeds: int, records: Sequence[Record]) -> Cost:
    seconds: dict[str, list[float]] = {}
    for record in records:
        seconds.setdefault(key_of(record["values"]), []).append(record["run"]["cpu_seconds"])
    known = [seconds[key] for key in (key_of(s.values) for s in settings) if key in seconds]
    full = sum(n_seeds * sum(each) / len(each) for each in known)
    return Cost(
        len(records),
        sum(map(sum, seconds.values())) / 3600,
        sum(record["run"]["seconds"] for record in records) / 3600,
        n_seeds * len(settings),
        full / 3600,
        len(settings) - len(known),
    )


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds in words, with ranges.

    Examples
    --------
    >>> seeds_text((0, 1, 2, 5)), seeds_text(())
    ('0 to 2, 5', 'none')
    """
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs) or "none"
