"""Table, figures and claims of the comparison of small trees, from its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from capi.experiments.comparison import Between, claim_of, paired
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.small_trees.settings import BATCH_PROBLEMS, DEPTHS, PROBLEMS, PROVED_DEPTHS
from capi.plotting.style import PALETTE, add_legend, marker_of, name_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("group", "problem", "depth", "method", "batch", "value", "share", "bound", "proved", "cpu_seconds")
WHERE = "beyond the paper"
CLOSE = 0.02  # to the proved optimum, as a share of (optimum - random)
NEAR = 0.01  # to imitation
LONG, TIMES = 60.0, 100.0  # processor seconds of the solver, and how much less the loop may need
OURS = {"capi": "The loop", "capi-search": "The loop with a search node by node"}
Case: TypeAlias = tuple[str, int]  # problem and depth
Found: TypeAlias = dict[str, dict[Case, Record]]  # by method


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per tree; the share is that of (optimum - random)."""
    return [
        {
            **{name: r.get(name) for name in COLUMNS},
            "share": None if r["value"] is None else share(r, r["value"]),
        }
        for r in records
    ]


def share(record: Record, value: float) -> float:
    """Return which share of the way from random actions to the optimum a value is."""
    return float((value - record["random"]) / (record["optimum"] - record["random"]))


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per source, problem and depth, with the share that each method reaches and the gap to the best tree."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found: dict[tuple[str, str, int], dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault((row["group"], row["problem"], row["depth"]), {}).setdefault(row["method"], []).append(row)
    order = {name: place for place, name in enumerate(PROBLEMS)}
    lines = []
    for group, problem, depth in sorted(found, key=lambda case: (case[0] != "model", order[case[1]], case[2])):
        own = found[group, problem, depth]
        gaps = [_gap(own, method) for method in OURS if group == "model"]
        cells = [_shown(own.get(method, [])) for method in methods]
        lines.append([group, problem, str(depth), *cells, " and ".join(gap for gap in gaps if gap)])
    title = (
        "Small trees: value between random actions (0) and the optimum of all policies (1), processor seconds in brackets; "
        "last, how far the loop, without and with the search, is below the proved best tree"
    )
    return title, ["source", "problem", "depth", *methods, "gap"], lines


def _gap(rows: Mapping[str, Sequence[Row]], method: str) -> str:
    if not rows.get("milp") or not rows["milp"][-1]["proved"] or method not in rows:
        return ""
    return f"{max(rows['milp'][-1]['share'] - rows[method][0]['share'], 0.0):.2%}"


def _shown(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    shares = [row["share"] for row in rows if row["share"] is not None]
    seconds = float(np.mean([row["cpu_seconds"] for row in rows]))
    value = f"{round(float(np.mean(shares)), 3) + 0.0:.3f}" if shares else "no tree"  # no negative zero
    proved = "" if rows[-1]["proved"] in (None, True) else ", not proved"
    return f"{value}{proved} ({seconds:,.{2 if seconds < 1 else 1 if seconds < 10 else 0}f} s)"


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure per source: a panel per problem, the share against the depth."""
    found = {}
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group and row["share"] is not None]
        if own:
            found[f"small-trees-{group}.png"] = _panels(own)
    return found


def _panels(rows: Sequence[Row]) -> Figure:
    problems = [name for name in PROBLEMS if any(row["problem"] == name for row in rows)]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    n_cols = min(4, len(problems))
    n_rows = -(-len(problems) // n_cols)
    figure, panels = new_figure(1.0 + 2.6 * n_cols, 0.8 + 2.4 * n_rows, n_rows=n_rows, n_cols=n_cols)
    for axes, problem in zip(panels, problems, strict=False):
        for number, method in enumerate(methods):
            own = [row for row in rows if row["problem"] == problem and row["method"] == method]
            depths = sorted({row["depth"] for row in own})
            means = [float(np.mean([row["share"] for row in own if row["depth"] == depth])) for depth in depths]
            style: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "marker": marker_of(number)}
            axes.plot(depths, means, label=method, alpha=0.8, **style)
        axes.set_xticks([1, 2, 3, 4])
        name_axes(axes, x="depth", y="share", title=problem)
    for axes in panels[len(problems) :]:
        axes.set_visible(False)
    add_legend(panels[0], "")
    return figure


# -- claims -------------------------------------------------------------------------------------------


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return our targets with what the records say about them; a target waits for all of its runs unless one of them refutes it."""
    model = _by_method(r for r in records if r["group"] == "model")
    made: dict[str, Claim] = {}
    for method, words in OURS.items():
        made |= _about(method, words, model)
    return made | _from_batches([r for r in records if r["group"] == "batch"])


def _about(method: str, words: str, model: Found) -> dict[str, Claim]:
    ours, proofs = model.get(method, {}), model.get("milp", {})
    ran = {case: r for case, r in proofs.items() if case in ours}
    proved = {case: r for case, r in ran.items() if r["proved"]}
    gaps = {case: share(r, r["value"]) - share(r, ours[case]["value"]) for case, r in proved.items()}
    to_prove = {(problem, depth) for problem in PROBLEMS for depth in PROVED_DEPTHS}
    counts = {"to_prove": len(to_prove), "ran": len(ran), "proved": len(proved), "not_run": len(to_prove - ran.keys())}
    long = {case: r for case, r in ran.items() if r["cpu_seconds"] > LONG}
    times = {
        case: r["cpu_seconds"] / max(ours[case]["cpu_seconds"], 1e-3)
        for case, r in long.items()
        if r.get("processor") == ours[case].get("processor")
    }
    imitated = {case: r for case, r in model.get("imitation", {}).items() if case in ours}
    behind = {case: share(r, r["value"]) - share(r, ours[case]["value"]) for case, r in imitated.items()}
    cases = {(problem, depth) for problem in PROBLEMS for depth in DEPTHS}
    proofs_complete = not to_prove - ran.keys()
    return {
        f"near-the-optimum/{method}": Claim(
            f"{words} is within {CLOSE:.0%} of (optimum - random) of the best tree wherever that is proved.",
            WHERE,
            _all([gap <= CLOSE for gap in gaps.values()], complete=proofs_complete),
            counts | _largest(gaps, "gap") | _missed(case for case, gap in gaps.items() if gap > CLOSE),
        ),
        f"cheap/{method}": Claim(
            f"{words} needs at most 1/{TIMES:g} of the processor time where the solver needs over {LONG:g} s.",
            WHERE,
            _all([each >= TIMES for each in times.values()], complete=proofs_complete and len(times) == len(long)),
            counts
            | {f"over_{LONG:g}_seconds": len(long), "on_the_same_processor": len(times)}
            | (
                {"least_ratio": min(times.values()), "where": _name(min(times, key=times.__getitem__))} if times else {}
            ),
        ),
        f"not-behind-imitation/{method}": Claim(
            f"{words} is never more than {NEAR:.0%} of (optimum - random) behind imitation.",
            WHERE,
            _all([each <= NEAR for each in behind.values()], complete=cases <= behind.keys()),
            {"trees": len(cases), "ran": len(behind)}
            | _largest(behind, "behind")
            | _missed(case for case, each in behind.items() if each > NEAR),
        ),
    }


def _all(verdicts: Sequence[bool], *, complete: bool) -> bool | None:
    """Return whether all hold: False if one does not, None if there are none or more to come."""
    return False if False in verdicts else True if verdicts and complete else None


def _from_batches(records: Sequence[Record]) -> dict[str, Claim]:
    """Compare with imitation from the same batches; with fewer than five of them the claim stays open."""
    shares: dict[tuple[str, Case], dict[int, float]] = {}
    for r in records:
        shares.setdefault((r["method"], (r["problem"], r["depth"])), {})[r["batch"]] = share(r, r["value"])
    cases = [(problem, depth) for problem in BATCH_PROBLEMS for depth in DEPTHS]
    ahead = {_name(case): paired(shares.get(("capi", case), {}), shares.get(("imitation", case), {})) for case in cases}
    means = {name: float(np.mean(values)) for name, values in ahead.items() if len(values)}
    least = min(means, key=means.__getitem__, default="")
    return {
        "not-behind-imitation/batch": claim_of(
            f"From a batch, the loop is never more than {NEAR:.0%} of (optimum - random) behind imitation of Tree-FQI.",
            WHERE,
            ahead,
            Between(-NEAR),
            numbers={
                "median_ahead": float(np.median(list(means.values()))),
                "least_ahead": means[least],
                "where": least,
            }
            if means
            else {},
        )
    }


def _by_method(records: Iterable[Record]) -> Found:
    """Return records by method; of two proofs of a case the one with more time."""
    found: Found = {}
    for r in records:
        cases = found.setdefault(r["method"], {})
        case = (r["problem"], r["depth"])
        if case not in cases or r.get("time_limit", 0) >= cases[case].get("time_limit", 0):
            cases[case] = r
    return found


def _largest(by_case: Mapping[Case, float], what: str) -> dict[str, Any]:
    if not by_case:
        return {}
    worst = max(by_case, key=lambda case: by_case[case])
    return {
        f"median_{what}": float(np.median(list(by_case.values()))),
        f"largest_{what}": by_case[worst],
        "where": _name(worst),
    }


def _missed(cases: Iterable[Case]) -> dict[str, Any]:
    names = "; ".join(_name(case) for case in cases)
    return {"missed": names} if names else {}


def _name(case: Case) -> str:
    return f"{case[0]}, depth {case[1]}"
