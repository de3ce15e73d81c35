"""How often faults that were planted in simulated tables are found, and how often clean tables are flagged.

Each table is drawn with settings of its own: the number of features and actions, how much decisions depend on the state, how much they
change it, and the noise. There are two kinds, episodes of about five decisions and single decisions. A fault counts as found if `describe` or the
checks of `evaluate` that look at the log alone name it; a clean table is flagged if any of these kinds of warnings appears. Every
result is a line of JSON in the file of results as soon as it is known, and tables that are there already are skipped:

    python scripts/planted_faults.py                          400 tables of each kind, size and fault, then the table
    python scripts/planted_faults.py --tables 100 --sizes 500
    python scripts/planted_faults.py --print                  only the table of the results so far
"""

import argparse
import json
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy import stats

from capi import Transitions
from capi.offline.caveats import about_given_probabilities
from capi.offline.log import Settings, log_of
from capi.offline.log_checks import log_caveats

RESULTS = Path(__file__).parent.parent / "results" / "planted_faults.jsonl"
SIZES = (500, 5000)
KINDS = ("episodes", "single decisions")
HARMLESS = {"constant-column", "missing-column", "like-an-id"}  # other warnings of `describe` that name a column
LEAKS = {"column"}  # any other warning of `describe` that names one
FAULTS = {  # name -> kinds of warnings that name it
    "clean": None,
    "a column fixes the reward in 90 % of its rows": LEAKS,
    "propensities off by a factor of 2": {"wrong-probabilities"},
    "one action absent in 20 % of the states": {"absent-action"},
    "10 % of the episodes doubled": {"repeated-episodes", "repeated-rows"},
    "features shifted by one row": {"shifted-features"},
}
EVERY = set().union(*(kinds for kinds in FAULTS.values() if kinds))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tables", type=int, default=400)
    options.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--print", action="store_true", dest="only_print")
    chosen = options.parse_args()
    if not chosen.only_print:
        measure(chosen.tables, chosen.sizes, chosen.out)
    print(table_of(chosen.out))


def measure(n_tables, sizes, out):
    """Write a line for each table that the file of results does not have yet."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["fault"], r["kind"], r["n"], r["seed"]) for r in read(out)}
    with out.open("a", encoding="utf-8") as file:
        for seed in range(n_tables):
            for n in sizes:
                for kind in KINDS:
                    for fault in FAULTS:
                        if (fault, kind, n, seed) not in done:
                            line = {
                                "fault": fault,
                                "kind": kind,
                                "n": n,
                                "seed": seed,
                                "found": found(fault, kind, n, seed),
                            }
                            file.write(json.dumps(line) + "\n")
                            file.flush()


def found(fault, kind, n, seed):
    """Return the kinds of warnings about one table."""
    rng = np.random.default_rng([seed, n, KINDS.index(kind), zlib.crc32(fault.encode())])
    batch = planted(fault, simulated(kind, n, rng, fault), rng)
    log = log_of(batch, Settings(0.9 if kind == "episodes" else 0.0, n_jobs=1))
    described = batch.describe().warnings
    columns = {"column" for caveat in described if caveat.column is not None and caveat.kind not in HARMLESS}
    warnings = [*described, *about_given_probabilities(log), *log_caveats(log)]
    return sorted({caveat.kind for caveat in warnings} | columns)


def simulated(kind, n, rng, fault):
    """Return the columns of a table with ``n`` rows, as arrays; every action has a probability of at least 10 % where it is not absent."""
    d, n_actions = int(rng.integers(2, 7)), int(rng.integers(2, 5))
    process = {
        "scores": rng.normal(size=(d, n_actions)) * rng.uniform(0.3, 1.5),
        "moves": rng.normal(size=(n_actions, d)) * rng.uniform(0.3, 1.0),
        "effects": rng.normal(size=(d + 1, n_actions)) * rng.uniform(0.5, 1.5),
    }
    length = 5 if kind == "episodes" else 1
    n_episodes, seed = n // length, int(rng.integers(2**32))
    gone = None
    if fault == "one action absent in 20 % of the states":
        column = int(rng.integers(d))
        usual = episodes(process, n_episodes, length, np.random.default_rng(seed), None)
        gone = column, float(np.quantile(usual["x"][:, column], 0.8)), int(rng.integers(n_actions))
    rows = episodes(process, n_episodes, length, np.random.default_rng(seed), gone)
    return rows | {"length": length, "n_actions": n_actions}


def episodes(process, n_episodes, length, rng, gone):
    """Return the rows of episodes; ``gone`` is a column, and the value above which an action is absent."""
    d, n_actions = process["scores"].shape
    x = rng.normal(size=(n_episodes, d))
    parts = defaultdict(list)
    for step in range(length):
        p = np.exp(x @ process["scores"])
        p = (1 - 0.1 * n_actions) * p / p.sum(axis=1, keepdims=True) + 0.1
        if gone is not None:
            p[x[:, gone[0]] > gone[1], gone[2]] = 0.0
            p /= p.sum(axis=1, keepdims=True)
        a = (p.cumsum(axis=1) < rng.random((n_episodes, 1))).sum(axis=1).clip(max=n_actions - 1)
        effects = process["effects"][:, a]
        r = effects[0] + np.einsum("ij,ji->i", x, effects[1:]) + 1.5 * rng.normal(size=n_episodes)
        following = 0.7 * x + process["moves"][a] + 0.7 * rng.normal(size=x.shape)
        here = {"x": x, "a": a, "r": r, "y": following, "p": p[np.arange(n_episodes), a]}
        here["end"] = np.full(n_episodes, step == length - 1)
        for name, values in here.items():
            parts[name].append(values)
        x = following
    n = n_episodes * length
    return {name: np.stack(values, axis=1).reshape(n, *values[0].shape[1:]) for name, values in parts.items()}


def planted(fault, rows, rng):
    """Return the batch of a table, with one fault."""
    x, y, length = rows["x"], rows["y"], rows["length"]
    order = np.arange(len(x))
    if fault.startswith("a column"):
        in_most = rng.random(len(x)) < 0.9
        if rng.random() < 0.5:  # two outcomes, and a flag that tells them in most rows and is 0 in the others
            rows["r"] = (rows["r"] > np.median(rows["r"])).astype(float)
            flag = np.where(in_most, 1 + rows["r"], 0.0)
        else:
            flag = np.where(in_most, rows["r"], rng.permutation(rows["r"]))
        x, y = np.column_stack([x, flag]), np.column_stack([y, np.roll(flag, -1)])
    elif fault.startswith("10 %"):
        n_episodes = len(x) // length
        again = rng.choice(n_episodes, n_episodes // 10, replace=False)
        order = np.concatenate([order, (again[:, None] * length + np.arange(length)).ravel()])
    elif fault.startswith("features"):
        x, y = np.roll(x, 1, axis=0), np.roll(y, 1, axis=0)
        if length > 1:
            inside = np.flatnonzero(~rows["end"])
            y[inside] = x[inside + 1]
    p = rows["p"]
    if fault.startswith("propensities"):
        p = np.minimum(p * (2.0 if rng.random() < 0.5 else 0.5), 1.0)
    n_new = np.repeat(np.arange(len(order) // length), length)
    return Transitions(
        x[order],
        rows["a"][order],
        rows["r"][order],
        y[order],
        rows["end"][order],
        n_actions=rows["n_actions"],
        episodes=n_new if length > 1 else None,
        propensities=p[order],
    )


def read(out):
    """Return the results so far; a line that was cut off by a kill is ignored."""
    if not out.exists():
        return []
    lines = out.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def table_of(out):
    """Return the table of the shares, with Clopper-Pearson intervals."""
    counts = defaultdict(lambda: [0, 0])
    for r in read(out):
        cell = counts[r["fault"], r["kind"], r["n"]]
        cell[0] += bool((FAULTS[r["fault"]] or EVERY) & set(r["found"]))
        cell[1] += 1
    sizes = sorted({key[2] for key in counts})
    heads = [f"{kind}, {n:,} rows" for kind in KINDS for n in sizes]
    lines = ["| fault | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for fault in FAULTS:
        cells = [share_text(*counts[fault, kind, n]) for kind in KINDS for n in sizes]
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def share_text(flagged, of):
    if not of:
        return "-"
    low = stats.beta.ppf(0.025, flagged, of - flagged + 1) if flagged else 0.0
    high = stats.beta.ppf(0.975, flagged + 1, of - flagged) if flagged < of else 1.0
    return f"{100 * flagged / of:.1f} % ({100 * low:.1f} to {100 * high:.1f}; {of})"


if __name__ == "__main__":
    main()
