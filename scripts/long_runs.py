"""Continue the runs of the paper's experiments that are listed below, at low priority, until all are finished.

    python scripts/long_runs.py             # run what is missing; Ctrl-C or kill at any time
    python scripts/long_runs.py --status    # only show what is finished
    python scripts/long_runs.py --experiments pole mountain-car    # these only
    touch docs/reproduction/PAUSE           # pause, for example to measure times; delete the file to continue

Records are added to docs/reproduction/NAME as runs finish; commit them. Several of these commands may run at once.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from capi.experiments.experiment import load_experiment
from capi.experiments.records import FOLDER, Records, is_finished, key_of
from capi.experiments.runner import Task, run_tasks

REPRODUCTION = Path(__file__).parent.parent / "docs" / "reproduction"


@dataclass(frozen=True)
class Item:
    """Groups of settings of an experiment (all if there are none), and with how many seeds to run them."""

    experiment: str
    groups: tuple[str, ...]
    n_seeds: int
    most_samples: int | None = None

    def tasks(self, folder: Path, n_seeds: int) -> list[Task]:
        """Return the tasks of the first seeds, all methods of a seed before the next one."""
        experiment = load_experiment(self.experiment)
        chosen = [
            setting
            for setting in experiment.settings("full")
            if not self.groups
            or (
                group_of(setting) in self.groups
                and (self.most_samples is None or setting.values["n_samples"] <= self.most_samples)
            )
        ]
        records = Records(folder / self.experiment / FOLDER)
        return [Task(experiment, setting, seed, records) for seed in range(n_seeds) for setting in chosen]


def group_of(setting):
    """Return the group of a setting, which its name begins with."""
    return setting.name.partition("/")[0]


TRACKS = ("no-track-limit", "track-limit")
READINGS = ("mean-loss", "sum-loss")
LIST = (
    Item("hiv", ("own",), 20),
    Item("hiv", ("shared",), 20),
    Item("mountain-car", READINGS, 20),
    Item("pole", TRACKS, 20, most_samples=1_000_000),
    Item("pole", TRACKS, 3, most_samples=30_000_000),
    Item("hiv", ("own-eta_v-5",), 10),  # fewer seeds than the others, because their runs cost most
    Item("hiv", ("own-new-trees",), 5),
    Item("pole", ("new-trees",), 5),
    Item("combinations", (), 20),
    Item("sensitivity", (), 5),
    Item("readable", (), 5),
    Item("patients", (), 5),
    Item("theory", (), 20),
    Item("small-trees", (), 1),  # nothing is random from the model, and its batches are settings
    Item("mountain-car", READINGS, 50),
)
FIRST_ETAS = (None, 20)  # Tree-FQI, and the Tree-CAPI that most items have


NAMES = tuple(sorted({item.experiment for item in LIST}))


def tasks(folder, experiments=NAMES):
    """Return all tasks without repetitions: the first seed of every item, what is cheap first, then the list in its order."""
    items = [item for item in LIST if item.experiment in experiments]

    def rank(task):
        values = task.setting.values
        if values.get("method") == "milp":
            return 3  # up to ten minutes each
        slow = task.records.folder.parent.name == "hiv"
        return slow + (slow and values["eta_pi"] not in FIRST_ETAS)

    first = sorted((task for item in items for task in item.tasks(folder, 1)), key=rank)
    rest = [task for item in items for task in item.tasks(folder, item.n_seeds)]
    return list({(task.records.folder, key_of(task.setting.values), task.seed): task for task in first + rest}.values())


def status(folder):
    """Print how many records each item has."""
    known = {
        name: {(key_of(record["values"]), record["seed"]): record for record in Records(folder / name / FOLDER)}
        for name in {item.experiment for item in LIST}
    }
    for item in LIST:
        records = known[item.experiment]
        listed = item.tasks(folder, item.n_seeds)
        found = [records.get((key_of(task.setting.values), task.seed)) for task in listed]
        n_failed = sum(record is not None and not is_finished(record) for record in found)
        hours = sum(record["run"]["cpu_seconds"] for record in found if record is not None) / 3600
        print(
            f"{item.experiment:13} {' '.join(item.groups) or 'all':28} {item.n_seeds:3} seeds"
            f"{'' if item.most_samples is None else f', up to {item.most_samples:.0e} samples':24}"
            f"{sum(map(is_finished, found)):6} of {len(found):5} finished, {n_failed} failed, {hours:.1f} CPU hours"
        )


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--status", action="store_true", help="only show what is finished")
    parser.add_argument("--jobs", type=int, default=-1, help="number of runs at once (default: one per core)")
    parser.add_argument("--experiments", nargs="+", choices=NAMES, default=NAMES, help="only these (default: all)")
    parser.add_argument("--folder", type=Path, default=REPRODUCTION, help="folder of the records")
    options = parser.parse_args()
    if options.status:
        status(options.folder)
        return
    if hasattr(os, "nice"):
        os.nice(19)
    report = lambda progress: print(f"{progress.event or 'found'}; {progress}", flush=True)  # noqa: E731
    try:
        outcome = run_tasks(
            tasks(options.folder, options.experiments), jobs=options.jobs, pause=options.folder / "PAUSE", report=report
        )
    except KeyboardInterrupt:
        sys.exit("stopped; finished runs are kept, and the same command continues with the rest.")
    sys.exit(1 if outcome.failed else 0)


if __name__ == "__main__":
    main()
