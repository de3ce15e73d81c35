"""An experiment at a glance: its verdicts, which seeds ran, and what the runs cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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

MOST_NAMES = 6  # of settings in a sentence
VERDICTS: tuple[Verdict, ...] = ("holds", "holds in part", "fails", "open")


@dataclass(frozen=True)
class Group:
    """How far the runs of a group of settings are."""

    name: str
    n_settings: int
    n_records: int
    ran: tuple[
        tuple[tuple[int, ...], tuple[str, ...]], ...
    ]  # seeds, and the settings that ran with exactly these, most settings first, those without a run last

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds with which all settings of the group are finished."""
        return tuple(sorted(set.intersection(*(set(seeds) for seeds, _ in self.ran))))

    @property
    def text(self) -> str:
        """Return which seeds ran; if settings differ, with which settings."""
        if len(self.ran) == 1:
            return seeds_text(self.ran[0][0])
        first, *others = self.ran
        told = [
            f"{seeds_text(first[0])} ({names_text(first[1]) if len(first[1]) == 1 else f'{len(first[1])} settings'})"
        ]
        return "; ".join(told + [f"{seeds_text(seeds)} ({names_text(names)})" for seeds, names in others])


@dataclass(frozen=True)
class Cost:
    """What the finished runs cost, and what those of the full size would."""

    n_runs: int
    cpu_hours: float
    hours: float  # the sum over runs, several of which may have run at the same time
    full_runs: int
    full_cpu_hours: float  # from the mean of each setting's runs; without the settings that were never run
    unknown: tuple[str, ...]  # names of the settings of the full size that were never run

    @property
    def not_counted(self) -> str:
        """Return which settings the cost of the full size leaves out; empty if there are none."""
        return f"{len(self.unknown)} settings that never ran: {names_text(self.unknown)}" if self.unknown else ""


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
    versions: dict[str, str] = field(default_factory=dict)  # of the other libraries, by name
    notes: tuple[str, ...] = ()  # on what follows from the records and is not a claim
    n_runs_per_setting: tuple[int, int] = (0, 0)  # the fewest and the most, of the settings of the full size

    def figures(self) -> dict[str, Figure]:
        """Return the figures by file name; none without a finished run."""
        return load_experiment(self.name).figures(self.rows) if self.rows else {}

    def n_verdicts(self) -> dict[Verdict, int]:
        """Return how many sentences have each verdict."""
        found = [one.verdict for one in self.judgements]
        return {verdict: found.count(verdict) for verdict in VERDICTS}


def overview(name: str, folder: str | Path) -> Overview:
    """Return the overview of the records of an experiment in its folder; if no run is finished, all claims are open."""
    experiment = load_experiment(name)
    full = experiment.settings("full")
    known = {key_of(s.values): s for size in reversed(SIZES) for s in experiment.settings(size)}
    places = {key: place for place, key in enumerate(known)}
    records = [r for r in Records(Path(folder) / FOLDER) if is_finished(r) and key_of(r["values"]) in known]
    records.sort(key=lambda r: (r["seed"], places[key_of(r["values"])]))
    results = [flat(r) for r in records]
    claims, rows = experiment.claims(results), experiment.table(results)
    by_group = sorted(rows, key=lambda row: str(row.get("group", "")))
    seeds = Counter(key_of(r["values"]) for r in records)
    ran = {key_of(s.values) for s in full} | seeds.keys()  # settings of the quick size count only if they ran
    per_setting = [seeds[key_of(s.values)] for s in full]
    notes: Callable[[Sequence[Record]], Sequence[str]] = getattr(experiment, "notes", lambda _: ())
    return Overview(
        name,
        NAMES[name],
        judgements(name, claims),
        claims,
        rows,
        experiment.summary(by_group) if rows else ("No run is finished", [], []),
        _groups([s for key, s in known.items() if key in ran], records),
        _cost(full, experiment.SEEDS["full"], records),
        dict(Counter(f"capi {r['run']['versions']['capi']} on {r['run']['processor']}" for r in records)),
        _versions(records),
        tuple(notes(results)),
        (min(per_setting), max(per_setting)),
    )


def _versions(records: Sequence[Record]) -> dict[str, str]:
    """Return the versions of the libraries with which the runs were made."""
    found: dict[str, set[str]] = {}
    for record in records:
        for library, version in record["run"]["versions"].items():
            found.setdefault(library, set()).add(version)
    return {library: " and ".join(sorted(versions)) for library, versions in found.items() if library != "capi"}


def _groups(settings: Iterable[Setting], records: Sequence[Record]) -> list[Group]:
    """Return all groups, those without records, too."""
    finished: dict[str, set[int]] = {}
    for record in records:
        finished.setdefault(key_of(record["values"]), set()).add(record["seed"])
    members: dict[str, dict[str, tuple[int, ...]]] = {}
    for setting in settings:
        group, _, name = setting.name.partition("/")
        members.setdefault(group, {})[name] = tuple(sorted(finished.get(key_of(setting.values), ())))
    found = []
    for group, seeds in members.items():
        ran = {one: tuple(name for name, own in seeds.items() if own == one) for one in dict.fromkeys(seeds.values())}
        ordered = sorted(ran.items(), key=lambda item: (not item[0], -len(item[1]), item[0]))
        found.append(Group(group, len(seeds), sum(map(len, seeds.values())), tuple(ordered)))
    return found


def _cost(settings: Sequence[Setting], n_seeds: int, records: Sequence[Record]) -> Cost:
    seconds: dict[str, list[float]] = {}
    for record in records:
        seconds.setdefault(key_of(record["values"]), []).append(record["run"]["cpu_seconds"])
    known = [seconds[key_of(s.values)] for s in settings if key_of(s.values) in seconds]
    full = sum(n_seeds * sum(each) / len(each) for each in known)
    return Cost(
        len(records),
        sum(map(sum, seconds.values())) / 3600,
        sum(record["run"]["seconds"] for record in records) / 3600,
        n_seeds * len(settings),
        full / 3600,
        tuple(s.name for s in settings if key_of(s.values) not in seconds),
    )


def names_text(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are.

    Examples
    --------
    >>> names_text(["a", "b"]), names_text(["a", "b", "c", "d", "e", "f", "g", "h"])
    ('a, b', 'a, b, c, d, e, f and 2 more')
    """
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


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
