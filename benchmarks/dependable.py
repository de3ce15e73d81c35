"""How dependable the policies are that plain defaults return: true returns over many seeds, next to what must be reached.

    python benchmarks/dependable.py                              # print the table from the records; runs nothing
    python benchmarks/dependable.py GROUP ... [--seeds N]        # run what is missing of these groups, then print it
    python benchmarks/dependable.py all --mdps FOLDER            # everything except the group that is looked at once, at the end
    python benchmarks/dependable.py --status

Groups: hiv-tree, hiv-forest, control, mdps, rank, states (whose table benchmarks/states.py prints), and hiv-new, which only runs
if it is named. A run takes seconds to minutes
on one core, all of them take hours; finished runs are in benchmarks/records/dependable and are never computed again. The finite
MDPs of the groups mdps and rank are read from the folder --mdps or CAPI_MDPS; without it their runs are skipped.
"""

import argparse
import os
import sys
from pathlib import Path

from dependability import runs
from dependability.learners import DEFAULTS, VARIANTS
from dependability.problems import MDPS
from dependability.settings import GROUPS, LAST, seeds, settings
from dependability.table import LEGEND, rows, text

from capi.experiments.records import Records, is_finished, key_of
from capi.experiments.runner import Task, duration, run_tasks

FOLDER = Path(__file__).parent / "records" / "dependable"


def tasks(groups, options):
    """Return the tasks of the groups, all settings of a seed before the next seed."""
    records = Records(options.folder)
    chosen = {group: seeds(group, options.first_seed, options.seeds) for group in groups}
    return [
        Task(runs, setting, seed, records)
        for seed in sorted(set().union(*chosen.values()))
        for group in groups
        if seed in chosen[group]
        for setting in settings(group, options.defaults)
        if not options.only or any(part in setting.name for part in options.only)
    ]


def without_missing_models(every):
    """Return the tasks that can run, and say why the others cannot."""
    can = [task for task in every if task.setting.values["problem"] != "mdp" or os.environ.get(MDPS)]
    if len(can) < len(every):
        print(
            f"{len(every) - len(can)} runs on finite MDPs are skipped: pass --mdps FOLDER (or set {MDPS}), the folder of their "
            "models as .npz files."
        )
    return can


def status(groups, options):
    """Print how many runs of each group are finished, and what they took."""
    known = {(key_of(record["values"]), record["seed"]): record for record in Records(options.folder)}
    for group in groups:
        listed = [known.get((key_of(task.setting.values), task.seed)) for task in tasks([group], options)]
        found = [record for record in listed if record is not None]
        seconds = sum(record["run"]["cpu_seconds"] for record in found)
        n_finished = sum(map(is_finished, found))
        print(
            f"{group:11} {n_finished:4} of {len(listed):4} finished, {len(found) - n_finished} failed, CPU time {duration(seconds)}"
        )
        for record in found:
            if not is_finished(record):
                print(f"  {record['setting']} seed {record['seed']}: {record['error'].strip().splitlines()[-1]}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"groups to run: {', '.join(GROUPS)}, or all")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: that of each group)")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="to choose settings on other seeds than those reported"
    )
    parser.add_argument("--jobs", type=int, default=-1, help="number of runs at once (default: one per core)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="only settings whose name contains one of these")
    parser.add_argument("--mdps", type=Path, metavar="FOLDER", help=f"folder of the finite MDPs (default: {MDPS})")
    parser.add_argument("--defaults", choices=list(VARIANTS), default=DEFAULTS, help="which learner to measure")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the records")
    parser.add_argument("--status", action="store_true", help="only show what is finished")
    parser.add_argument("--table", action="store_true", help="only print the table")
    options = parser.parse_args(arguments)
    if unknown := set(options.groups) - {*GROUPS, "all"}:
        parser.error(f"unknown group {min(unknown)!r}: choose from {', '.join(GROUPS)} and all.")
    if options.mdps is not None:
        os.environ[MDPS] = str(options.mdps.resolve())
    named = [group for group in GROUPS if group in options.groups or ("all" in options.groups and group != LAST)]
    if options.status:
        status(named or list(GROUPS), options)
        return
    failed = False
    if named and not options.table:
        report = lambda progress: print(f"{progress.event or 'found'}; {progress}", flush=True)  # noqa: E731
        try:
            failed = bool(
                run_tasks(without_missing_models(tasks(named, options)), jobs=options.jobs, report=report).failed
            )
        except KeyboardInterrupt:
            sys.exit("stopped; finished runs are kept, and the same command continues with the rest.")
    print(f"\nDefaults: {options.defaults}\n")
    print(text(rows(Records(options.folder), options.defaults, named or list(GROUPS), options.first_seed)))
    print(f"\n{LEGEND}")
    if failed:
        sys.exit("some runs failed; --status shows why.")


if __name__ == "__main__":
    main()
