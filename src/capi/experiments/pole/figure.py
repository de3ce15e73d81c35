"""Table, figures and the paper's claims as predicates, from the records of pole balancing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.statistics import all_hold, standard_error
from capi._utils.validation import Floats
from capi.experiments.comparison import (
    FEWEST_SEEDS,
    Between,
    claim_of,
    differences,
    mean_text,
    paired,
    runs_text,
    values_of,
)
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.pole.settings import COST_SAMPLES, GROUPS, MAX_STEPS, METHODS, ROLLOUT_SAMPLES, SAMPLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = (
    "group",
    "method",
    "eta_pi",
    "n_samples",
    "n_used",
    "seed",
    "steps",
    "fewest_steps",
    "return",
    "learning_cpu_seconds",
    "decision_cpu_seconds",
    "processor",
)
TITLES = {
    "no-track-limit": "no track limit",
    "track-limit": "track of +-2.4 m",
    "new-trees": "no track limit, new trees in every sweep",
}
WHERE = "Appendix, on pole balancing"
SOLVED = 0.99 * MAX_STEPS
CLOSE = 0.05  # of the largest number of steps: "the same performance"
MARGIN = CLOSE * MAX_STEPS
MANY, FEW = 15_000, 1_000  # samples above which CAPI solves the problem, and at which it leads, according to the paper
STYLES = {  # Okabe and Ito's palette, and markers that distinguish the methods without colour
    ("Tree-FQI", None): ("#0072B2", "s", "--"),
    ("Tree-CAPI", 20): ("#D55E00", "o", "-"),
    ("Tree-CAPI", 500): ("#E69F00", "v", "-"),
    ("Tree-DPI", 20): ("#009E73", "^", ":"),
    ("Tree-DPI", 100): ("#56B4E9", "D", ":"),
    ("Tree-DPI", 500): ("#CC79A7", "x", ":"),
}

CAPI_ETAS, DPI_ETAS = (
    tuple(eta for name, eta in METHODS if name == method and eta) for method in ("Tree-CAPI", "Tree-DPI")
)
TWICE, SAME = Between(1.5, 3.0), Between(0.5, 2.0)  # what counts as "almost twice" and "almost the same" time

Case = tuple[str, int | None, int]  # method, eta_pi and the number of samples
BySeed = dict[Case, dict[int, float]]  # mean steps by seed
Times = dict[Case, dict[tuple[int, str], float]]  # seconds by seed and kind of processor


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per run."""
    return [{name: "" if r.get(name) is None else r[name] for name in COLUMNS} for r in records]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per group, method and size of policy trees with the mean steps for each number of samples."""
    sizes = sorted({row["n_samples"] for row in rows})
    cases: dict[tuple[Any, ...], dict[int, list[float]]] = {}
    for row in rows:
        of_case = cases.setdefault((row["group"], row["method"], row["eta_pi"]), {})
        of_case.setdefault(row["n_samples"], []).append(row["steps"])
    lines = [
        [group, method, str(eta), runs_text(map(len, found.values()))] + [mean_text(found.get(n, [])) for n in sizes]
        for (group, method, eta), found in cases.items()
    ]
    return (
        f"Pole balancing: mean steps, at most {MAX_STEPS:,} (s.e. over runs; none for a single run)",
        ["group", "method", "eta_pi", "runs by number of samples", *(f"{n:,}" for n in sizes)],
        lines,
    )


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure per group: steps, return and learning time against the number of samples."""
    found = {}
    for group in (group for group in TITLES if any(row["group"] == group for row in rows)):
        own = [row for row in rows if row["group"] == group]
        processor, timed = _on_one_processor(own)
        seeds = len({row["seed"] for row in timed})
        on = f", {processor} only, {seeds} {'seed' if seeds == 1 else 'seeds'}" if processor else ""
        panels = {
            "steps": (f"steps balanced (at most {MAX_STEPS:,})", own),
            "return": ("discounted return", own),
            "learning_cpu_seconds": (f"learning time in CPU seconds\n({len(timed)} of {len(own)} runs{on})", timed),
        }
        figure = matplotlib.figure.Figure(figsize=(11, 3.8), layout="constrained")
        figure.suptitle(f"Pole balancing, {TITLES[group]}")
        for axes, (quantity, (label, chosen)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
            _draw(axes, chosen, quantity)
            axes.set_ylabel(label)
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=len(STYLES), frameon=False)
        found[f"pole-{group}.png"] = figure
    return found


def _draw(axes: Axes, rows: Sequence[Row], quantity: str) -> None:
    for (method, eta), (colour, marker, line) in STYLES.items():
        points: dict[int, list[float]] = {}
        for row in rows:
            if (row["method"], row["eta_pi"]) == (method, "" if eta is None else eta):
                points.setdefault(row["n_samples"], []).append(row[quantity])
        if not points:
            continue
        sizes = sorted(points)
        means = [np.mean(points[n]) for n in sizes]
        errors = [np.nan_to_num(standard_error(np.array(points[n]))) for n in sizes]
        style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": line, "markersize": 5, "capsize": 2}
        axes.errorbar(sizes, means, yerr=errors, label=method if eta is None else f"{method} {eta}", **style)
    axes.set_xscale("log")
    if quantity == "learning_cpu_seconds":
        axes.set_yscale("log")
    axes.set_xlabel("samples")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _on_one_processor(rows: Sequence[Row]) -> tuple[str, list[Row]]:
    """Return the kind of processor on which most methods ran, then most runs, and its rows for the seeds that all these methods have there."""
    by_processor: dict[str, dict[tuple[str, Any], set[int]]] = {}
    for row in rows:
        methods = by_processor.setdefault(row["processor"], {})
        methods.setdefault((row["method"], row["eta_pi"]), set()).add(row["seed"])
    shared = {name: set.intersection(*methods.values()) for name, methods in by_processor.items()}
    best = max(by_processor, key=lambda name: (bool(shared[name]), len(by_processor[name]), len(shared[name]), name))
    return best, [row for row in rows if row["processor"] == best and row["seed"] in shared[best]]


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the paper's claims on pole balancing for each kind of track, and those on costs; with few runs they stay undecided."""
    found: dict[str, Claim] = {}
    for group in GROUPS:
        steps = _by_seed([r for r in records if r["group"] == group], "steps")
        found |= {f"{group}/{name}": claim for name, claim in (_against_fqi(steps) | _rollouts(steps)).items()}
    anew = [r for r in records if r["group"] == "new-trees"]
    rollouts = [r for r in records if r["group"] == "no-track-limit" and r["method"] == "Tree-DPI"]
    named = {**_costs(anew), **_against_rollouts(anew, rollouts)}
    return found | {f"new-trees/{name}": claim for name, claim in named.items()}


def _by_seed(records: Sequence[Record], quantity: str) -> BySeed:
    found: BySeed = {}
    for r in records:
        found.setdefault((r["method"], r["eta_pi"], r["n_samples"]), {})[r["seed"]] = r[quantity]
    return found


def _against_fqi(steps: BySeed) -> dict[str, Claim]:
    """Return the claims on Tree-CAPI and Tree-FQI: at all numbers of samples, whether or not one of them solves the problem there."""
    fqi = {n: steps.get(("Tree-FQI", None, n), {}) for n in SAMPLES}
    capi = {(eta, n): steps.get(("Tree-CAPI", eta, n), {}) for eta in CAPI_ETAS for n in SAMPLES}
    leads = {case: _less(own, fqi[case[1]]) for case, own in capi.items()}
    at_few = {eta: leads[eta, FEW] for eta in CAPI_ETAS}
    more_when_few = {
        f"eta_pi {eta}, few - many": _few_less_many({n: leads[eta, n] for n in SAMPLES}) for eta in CAPI_ETAS
    }
    steadier = {f"{n:,} samples": paired(_spread(fqi[n]), _spread(capi[20, n])) for n in SAMPLES}
    sooner = {
        f"Tree-CAPI 20 at {fewer:,} - Tree-FQI at {n:,}": paired(capi[20, fewer], fqi[n])
        for fewer, n in pairwise(SAMPLES)
    }
    means = {"tree_fqi": _means(steps, "Tree-FQI", None)} | {
        f"capi_{eta}": _means(steps, "Tree-CAPI", eta) for eta in CAPI_ETAS
    }
    return {
        "capi-solves-it-with-many-samples": _solves({case: own for case, own in capi.items() if case[1] > MANY}),
        "capi-leads-at-all-sizes": claim_of(
            "At every number of samples, Tree-CAPI balances for longer than Tree-FQI.",
            WHERE,
            {f"eta_pi {eta}, {n:,} samples": values_of(lead) for (eta, n), lead in leads.items()},
            numbers=means,
        ),
        "capi-leads-with-few-samples": claim_of(
            f"With {FEW:,} samples, Tree-CAPI balances for longer than Tree-FQI.",
            WHERE,
            {f"eta_pi {eta}, {FEW:,} samples": values_of(lead) for eta, lead in at_few.items()},
            numbers=means,
        ),
        "capi-leads-most-with-few-samples": claim_of(
            f"On average, its lead is larger with up to {FEW:,} samples than with more.", WHERE, more_when_few
        ),
        "simple-policies-suffice-less-if-too-simple": claim_of(
            f"With {FEW:,} samples, the lead is larger with eta_pi 20 than with 500.",
            WHERE,
            {"lead of 20 - lead of 500": paired(at_few[20], at_few[500])},
        ),
        "capi-is-more-stable": claim_of(
            "At every number of samples, the steps of Tree-CAPI 20 vary less from run to run than those of Tree-FQI (distance from the median).",
            WHERE,
            steadier,
        ),
        "capi-needs-fewer-samples": claim_of(
            f"Tree-CAPI 20 balances for as long as Tree-FQI with the next larger number of samples (to within {CLOSE:.0%} of {MAX_STEPS:,} steps).",
            "Section 7",
            sooner,
            Between(-MARGIN),
        ),
    }


def _solves(by_case: Mapping[tuple[int, int], Mapping[int, float]]) -> Claim:
    """Return the claim on all runs, which the worst run decides: a single one refutes it."""
    numbers, verdicts = {}, []
    for (eta, n), found in by_case.items():
        worst = min(found, key=lambda seed: found[seed], default=None)
        solved = sum(steps >= SOLVED for steps in found.values())
        verdicts.append(False if solved < len(found) else True if len(found) >= FEWEST_SEEDS else None)
        numbers[f"eta_pi {eta}, {n:,} samples"] = {"runs": len(found), "solved": solved} | (
            {} if worst is None else {"fewest_steps_of_a_run": found[worst], "with_seed": worst}
        )
    return Claim(
        f"With more than {MANY:,} samples, all runs of Tree-CAPI balance for at least {SOLVED:.0f} of {MAX_STEPS} steps, on average over their "
        f"tests; one run refutes it, and {FEWEST_SEEDS} runs of each kind are needed to support it.",
        WHERE,
        all_hold(verdicts),
        numbers,
    )


def _rollouts(steps: BySeed) -> dict[str, Claim]:
    """Return the claims on what Tree-DPI reaches with as many samples, and with many more."""
    capi = {n: steps.get(("Tree-CAPI", 20, n), {}) for n in SAMPLES}
    fqi = {n: steps.get(("Tree-FQI", None, n), {}) for n in SAMPLES}
    dpi = {(eta, n): steps.get(("Tree-DPI", eta, n), {}) for eta in DPI_ETAS for n in (*SAMPLES, *ROLLOUT_SAMPLES)}
    means = {f"tree_dpi_{eta}": _means(steps, "Tree-DPI", eta) for eta in DPI_ETAS}
    lags = {eta: {n: _less(capi[n], dpi[eta, n]) for n in SAMPLES} for eta in DPI_ETAS}
    rollout, fewer = dpi[500, 30_000_000], dpi[500, 1_000_000]
    late = {
        "Tree-DPI 500 at 3e7 - Tree-CAPI 20 at 1e4": (paired(rollout, capi[10_000]), Between(-MARGIN)),
        "Tree-DPI 500 at 3e7 - Tree-FQI at 3e4": (paired(rollout, fqi[30_000]), Between(-MARGIN)),
        "Tree-CAPI 20 at 1e4 - Tree-DPI 500 at 1e6": (paired(capi[10_000], fewer), Between(MARGIN)),
    }
    return {
        "rollouts-need-more-samples": claim_of(
            "With the same number of samples, Tree-DPI balances for a shorter time than Tree-CAPI 20.",
            WHERE,
            {f"eta_pi {eta}, {n:,} samples": values_of(lag) for eta, by_n in lags.items() for n, lag in by_n.items()},
            numbers=means,
        ),
        "rollouts-need-more-samples-than-fqi": claim_of(
            "With the same number of samples, Tree-DPI balances for a shorter time than Tree-FQI.",
            WHERE,
            {f"eta_pi {eta}, {n:,} samples": paired(fqi[n], dpi[eta, n]) for eta in DPI_ETAS for n in SAMPLES},
            numbers=means,
        ),
        "rollouts-lag-most-with-few-samples": claim_of(
            f"On average, Tree-DPI is further behind Tree-CAPI 20 with up to {FEW:,} samples than with more.",
            WHERE,
            {f"eta_pi {eta}, few - many": _few_less_many(by_n) for eta, by_n in lags.items()},
        ),
        "rollouts-need-thousands-of-times-as-many": Claim(
            "With 3 x 10^7 samples, Tree-DPI 500 balances for as long as Tree-CAPI 20 with 10^4 and Tree-FQI with 3 x 10^4 "
            f"(to within {CLOSE:.0%} of {MAX_STEPS:,} steps); with 10^6 it does not.",
            WHERE,
            all_hold(judge(values) for values, judge in late.values()),
            {"tree_dpi_500": means["tree_dpi_500"]},
            {
                key: part
                for name, (values, judge) in late.items()
                for key, part in differences({name: values}, judge).items()
            },
        ),
    }


# -- times, which are compared only between runs with the same seed on the same kind of processor -----


def _against_rollouts(anew: Sequence[Record], rollouts: Sequence[Record]) -> dict[str, Claim]:
    """Return the claim that Tree-CAPI costs more than Tree-DPI with the same eta_pi; both grow new trees in every round."""
    capi, dpi = (_times(chosen, "learning_cpu_seconds") for chosen in (anew, rollouts))
    more = {
        f"eta_pi {eta}, {n:,} samples, seconds": paired(
            capi.get(("Tree-CAPI", eta, n), {}), dpi.get(("Tree-DPI", eta, n), {})
        )
        for eta in CAPI_ETAS
        for n in COST_SAMPLES
    }
    both = _pairs(anew, rollouts, "Tree-DPI")
    return {
        "capi-costs-more-than-rollouts": claim_of(
            "With as many samples, learning takes Tree-CAPI more CPU time than Tree-DPI.", WHERE, more, numbers=both
        )
    }


def notes(records: Sequence[Record]) -> list[str]:
    """Return which learning times can be compared: those of runs with the same seed on the same kind of processor."""
    found = []
    for group in TITLES:
        own = [r for r in records if r["group"] == group]
        pairs = {
            other: _pairs(own, own, other)
            for other in ("Tree-FQI", "Tree-DPI")
            if any(r["method"] == other for r in own) and any(r["method"] == "Tree-CAPI" for r in own)
        }
        words = " and ".join(
            f"{both['on_the_same_processor']} of {both['pairs']} pairs of Tree-CAPI and {other}"
            for other, both in pairs.items()
        )
        if words:
            found.append(
                f"{group}: {words} with the same seed and number of samples ran on the same kind of processor; the panel of learning times shows one "
                "kind of processor alone."
            )
    return found


def _pairs(ours: Sequence[Record], others: Sequence[Record], other: str) -> dict[str, int]:
    """Return how many pairs of runs of Tree-CAPI and another method there are, for each size of trees that both have."""
    by_case: dict[tuple[Any, ...], list[str]] = {}
    for r in others:
        if r["method"] == other:
            by_case.setdefault((r["eta_pi"], r["n_samples"], r["seed"]), []).append(r.get("processor", ""))
    found = [
        r.get("processor", "") == processor
        for r in ours
        if r["method"] == "Tree-CAPI"
        for processor in by_case.get((None if other == "Tree-FQI" else r["eta_pi"], r["n_samples"], r["seed"]), [])
    ]
    return {"pairs": len(found), "on_the_same_processor": sum(found)}


def _costs(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the claims on what Tree-CAPI costs against Tree-FQI if both grow new trees in every sweep."""
    learning, deciding = (_ratios(_times(records, f"{what}_cpu_seconds")) for what in ("learning", "decision"))
    where, both = "Section 7, on computation", _pairs(records, records, "Tree-FQI")
    return {
        "learning-costs-more": claim_of(
            "Learning takes Tree-CAPI longer than Tree-FQI.", where, learning, Between(1.0), numbers=both
        ),
        "learning-costs-about-twice-as-much": claim_of(
            f"Learning takes Tree-CAPI between {TWICE.low:g} and {TWICE.high:g} times as long as Tree-FQI (it grows two ensembles instead of one).",
            where,
            learning,
            TWICE,
            numbers=both,
        ),
        "decisions-cost-the-same": claim_of(
            f"A decision takes Tree-CAPI between {SAME.low:g} and {SAME.high:g} times as long as Tree-FQI.",
            where,
            deciding,
            SAME,
            numbers=both,
        ),
    }


def _times(records: Sequence[Record], quantity: str) -> Times:
    found: Times = {}
    for r in records:
        case = found.setdefault((r["method"], r["eta_pi"], r["n_samples"]), {})
        case[r["seed"], r.get("processor", "")] = r[quantity]
    return found


def _ratios(times: Times) -> dict[str, Floats]:
    """Return, by eta_pi and number of samples, the time of Tree-CAPI in units of that of Tree-FQI, one value per seed."""
    found = {}
    for eta in CAPI_ETAS:
        for n in COST_SAMPLES:
            own, fqi = times.get(("Tree-CAPI", eta, n), {}), times.get(("Tree-FQI", None, n), {})
            ratios = [own[run] / fqi[run] for run in sorted(own.keys() & fqi.keys())]
            found[f"eta_pi {eta}, {n:,} samples, ratio"] = np.array(ratios, dtype=float)
    return found


def _means(steps: BySeed, method: str, eta_pi: int | None) -> dict[str, float]:
    """Return the mean steps of a method by number of samples."""
    return {
        str(n): float(np.mean(list(found.values())))
        for (m, eta, n), found in sorted(steps.items(), key=lambda item: item[0][2])
        if (m, eta) == (method, eta_pi)
    }


def _spread(by_seed: Mapping[int, float]) -> dict[int, float]:
    """Return how far each seed is from the median."""
    middle = float(np.median(list(by_seed.values()))) if by_seed else 0.0
    return {seed: abs(value - middle) for seed, value in by_seed.items()}


def _less(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    """Return first - second by seed."""
    return {seed: first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())}


def _few_less_many(by_n: Mapping[int, Mapping[int, float]]) -> Floats:
    """Return the mean over few samples minus the mean over more, for the seeds that have run with all of them."""
    seeds = sorted(set.intersection(*(set(found) for found in by_n.values())))
    few, many = ([by_n[n] for n in by_n if (n <= FEW) is small] for small in (True, False))
    return np.array([np.mean([f[seed] for f in few]) - np.mean([f[seed] for f in many]) for seed in seeds], dtype=float)
