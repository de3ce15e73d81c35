"""Table, figures and the paper's claims as predicates, from the records of pole balancing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.statistics import all_hold, standard_error
from capi._utils.validation import Floats
from capi.experiments.comparison import differences, paired, positive
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.pole.settings import GROUPS, MAX_STEPS, SAMPLES

if TYPE_CHECKING:
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

Case = tuple[str, int | None, int]  # method, eta_pi and the number of samples
BySeed = dict[Case, dict[int, float]]  # mean steps, or seconds, by seed
NONE: Floats = np.empty(0)


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per run."""
    return [{name: "" if r[name] is None else r[name] for name in COLUMNS} for r in records]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per group, method and size of policy trees with the mean steps for each number of samples."""
    sizes = sorted({row["n_samples"] for row in rows})
    cases: dict[tuple[Any, ...], dict[int, list[float]]] = {}
    for row in rows:
        of_case = cases.setdefault((row["group"], row["method"], row["eta_pi"]), {})
        of_case.setdefault(row["n_samples"], []).append(row["steps"])
    lines = [
        [group, method, str(eta)] + [f"{np.mean(found[n]):.0f}" if n in found else "" for n in sizes]
        for (group, method, eta), found in cases.items()
    ]
    return (
        f"Pole balancing: mean steps, at most {MAX_STEPS:,}",
        ["group", "method", "eta_pi", *(f"{n}" for n in sizes)],
        lines,
    )


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure per group: steps, return and learning time against the number of samples."""
    quantities = {
        "steps": f"steps balanced (at most {MAX_STEPS:,})",
        "return": "discounted return",
        "learning_cpu_seconds": "learning time in CPU seconds",
    }
    found = {}
    for group in (group for group in TITLES if any(row["group"] == group for row in rows)):
        figure = matplotlib.figure.Figure(figsize=(11, 3.8), layout="constrained")
        figure.suptitle(f"Pole balancing, {TITLES[group]}")
        for axes, (quantity, label) in zip(figure.subplots(1, 3), quantities.items(), strict=True):
            for (method, eta), (colour, marker, line) in STYLES.items():
                points: dict[int, list[float]] = {}
                for row in rows:
                    case = (row["group"], row["method"], row["eta_pi"])
                    if case == (group, method, "" if eta is None else eta):
                        points.setdefault(row["n_samples"], []).append(row[quantity])
                if not points:
                    continue
                sizes = sorted(points)
                means = [np.mean(points[n]) for n in sizes]
                errors = [np.nan_to_num(standard_error(np.array(points[n]))) for n in sizes]
                name = method if eta is None else f"{method} {eta}"
                axes.errorbar(
                    sizes,
                    means,
                    yerr=errors,
                    color=colour,
                    marker=marker,
                    linestyle=line,
                    markersize=5,
                    capsize=2,
                    label=name,
                )
            axes.set_xscale("log")
            if quantity == "learning_cpu_seconds":
                axes.set_yscale("log")
            axes.set_xlabel("samples")
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=len(STYLES), frameon=False)
        found[f"pole-{group}.png"] = figure
    return found


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the paper's claims on pole balancing for each kind of track, and those on costs; with few runs they stay undecided."""
    found: dict[str, Claim] = {}
    for group in GROUPS:
        chosen = [r for r in records if r["group"] == group]
        if chosen:
            found |= {f"{group}/{name}": claim for name, claim in _claims_of(_by_seed(chosen, "steps")).items()}
    anew = [r for r in records if r["group"] == "new-trees"]
    if anew:
        rollouts = [r for r in records if r["group"] == "no-track-limit" and r["method"] == "Tree-DPI"]
        named = {**_costs(anew), **_against_rollouts(anew, rollouts)}
        found |= {f"new-trees/{name}": claim for name, claim in named.items()}
    return found


def _by_seed(records: Sequence[Record], quantity: str) -> BySeed:
    found: BySeed = {}
    for r in records:
        found.setdefault((r["method"], r["eta_pi"], r["n_samples"]), {})[r["seed"]] = r[quantity]
    return found


def _claims_of(steps: BySeed) -> dict[str, Claim]:
    fqi, rollouts = _means(steps, "Tree-FQI", None), {eta: _means(steps, "Tree-DPI", eta) for eta in (20, 100, 500)}
    capi = {f"capi_{eta}": _means(steps, "Tree-CAPI", eta) for eta in (20, 500)}
    large = [("Tree-CAPI", eta, n) for eta in (20, 500) for n in SAMPLES if n > MANY]
    sizes = sorted({n for method, _, n in steps if method == "Tree-FQI"})
    leads = {
        (eta, n): paired(steps.get(("Tree-CAPI", eta, n), {}), steps.get(("Tree-FQI", None, n), {}))
        for eta in (20, 500)
        for n in sizes
    }
    behind = {
        (eta, n): paired(steps.get(("Tree-CAPI", 20, n), {}), steps.get(("Tree-DPI", eta, n), {}))
        for eta in (20, 100, 500)
        for n in sizes
        if ("Tree-DPI", eta, n) in steps and ("Tree-CAPI", 20, n) in steps
    }
    steadier = {
        f"{n:,} samples": paired(
            _spread(steps.get(("Tree-FQI", None, n), {})), _spread(steps.get(("Tree-CAPI", 20, n), {}))
        )
        for n in sizes
        if fqi[str(n)] < SOLVED
    }
    solved = {f"eta_pi {case[1]}, {case[2]:,} samples": _over(steps, case, SOLVED) for case in large}
    match, rollout, of_fqi, fewer = (
        steps.get(case, {})
        for case in (
            ("Tree-CAPI", 20, 10_000),
            ("Tree-DPI", 500, 30_000_000),
            ("Tree-FQI", None, 30_000),
            ("Tree-DPI", 500, 1_000_000),
        )
    )
    least = {("Tree-CAPI", eta, n): _least_of(steps, n, eta) for eta in (20, 500) for n in SAMPLES if n > MANY}
    return {
        "capi-solves-it-with-many-samples": Claim(
            f"With more than {MANY:,} samples, Tree-CAPI balances for {MAX_STEPS:,} steps (on average for at least 99 % of them).",
            WHERE,
            all_hold(positive(values) for values in solved.values()),
            {**capi, "fewest_steps_of_a_run": {f"{eta}, {n:,} samples": few for (_, eta, n), few in least.items()}},
            differences({f"{name}, steps - {SOLVED:g}": values for name, values in solved.items()}),
        ),
        "capi-leads-with-few-samples": Claim(
            f"With {FEW:,} samples, Tree-CAPI balances for longer than Tree-FQI.",
            WHERE,
            all_hold(positive(leads.get((eta, FEW), NONE)) for eta in (20, 500)),
            {"tree_fqi": fqi, **capi},
            differences({f"eta_pi {eta}, {FEW:,} samples": leads.get((eta, FEW), NONE) for eta in (20, 500)}),
        ),
        "capi-leads-at-all-sizes": Claim(
            "At every number of samples that does not suffice for Tree-FQI, Tree-CAPI 20 balances for longer.",
            WHERE,
            all_hold(positive(leads[20, n]) for n in sizes if fqi[str(n)] < SOLVED),
            {"tree_fqi": fqi, "capi_20": capi["capi_20"]},
            differences({f"{n:,} samples": leads[20, n] for n in sizes if fqi[str(n)] < SOLVED}),
        ),
        "simple-policies-suffice-less-if-too-simple": Claim(
            f"With {FEW:,} samples, the lead is larger with eta_pi 20 than with 500.",
            WHERE,
            positive(_both(leads.get((20, FEW), NONE), leads.get((500, FEW), NONE))),
            {},
            differences({"lead of 20 - lead of 500": _both(leads.get((20, FEW), NONE), leads.get((500, FEW), NONE))}),
        ),
        "capi-is-more-stable": Claim(
            "Where Tree-FQI does not solve the problem, the steps of Tree-CAPI 20 vary less from run to run (distance from the median).",
            WHERE,
            all_hold(positive(values) for values in steadier.values()),
            {},
            differences(steadier),
        ),
        "rollouts-need-more-samples": Claim(
            "With the same number of samples, Tree-DPI balances for a shorter time than Tree-CAPI 20.",
            WHERE,
            all_hold(positive(values) for values in behind.values()),
            {"tree_dpi": {str(eta): means for eta, means in rollouts.items()}, "capi_20": capi["capi_20"]},
            differences({f"eta_pi {eta}, {n:,} samples": values for (eta, n), values in behind.items()}),
        ),
        "rollouts-need-thousands-of-times-as-many": Claim(
            "With 3 x 10^7 samples, Tree-DPI 500 balances for as long as Tree-CAPI 20 with 10^4 and Tree-FQI with 3 x 10^4 "
            f"(to within {CLOSE:.0%}); with 10^6 it does not.",
            WHERE,
            _as_good(rollout, (match, of_fqi), fewer),
            {"tree_dpi_500": rollouts[500]},
            {
                **differences(
                    {
                        "Tree-DPI 500 at 3e7 - Tree-CAPI 20 at 1e4": paired(rollout, match),
                        "Tree-DPI 500 at 3e7 - Tree-FQI at 3e4": paired(rollout, of_fqi),
                    },
                    lambda values: positive(values + MARGIN),
                ),
                **differences(
                    {"Tree-CAPI 20 at 1e4 - Tree-DPI 500 at 1e6": paired(match, fewer)},
                    lambda values: positive(values - MARGIN),
                ),
            },
        ),
    }


def _against_rollouts(anew: Sequence[Record], rollouts: Sequence[Record]) -> dict[str, Claim]:
    """Return the claim that Tree-CAPI costs more than Tree-DPI with the same eta_pi; both grow new trees in every round."""
    capi, dpi = (_by_seed(chosen, "learning_cpu_seconds") for chosen in (anew, rollouts))
    more = {
        f"eta_pi {eta}, {n:,} samples, seconds": paired(seconds, dpi["Tree-DPI", eta, n])
        for (method, eta, n), seconds in capi.items()
        if method == "Tree-CAPI" and ("Tree-DPI", eta, n) in dpi
    }
    return {
        "capi-costs-more-than-rollouts": Claim(
            "With as many samples, learning takes Tree-CAPI more CPU time than Tree-DPI.",
            WHERE,
            all_hold(positive(values) for values in more.values()),
            {},
            differences(more),
        )
    }


def _costs(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the claims on what Tree-CAPI costs against Tree-FQI if both grow new trees in every sweep."""
    learning, deciding = (_by_seed(records, f"{what}_cpu_seconds") for what in ("learning", "decision"))
    ratios = {name: _ratios(times) for name, times in (("learning", learning), ("decision", deciding))}
    return {
        "learning-costs-about-twice-as-much": Claim(
            "Learning takes Tree-CAPI between 1.5 and 3 times as long as Tree-FQI (it grows two ensembles instead of one).",
            "Section 7, on computation",
            all_hold(_about_twice(values) for values in ratios["learning"].values()),
            {},
            differences({f"{name}, ratio": values for name, values in ratios["learning"].items()}, _about_twice),
        ),
        "decisions-cost-the-same": Claim(
            "A decision takes Tree-CAPI at most twice as long as Tree-FQI.",
            "Section 7, on computation",
            all_hold(_at_most_twice(values) for values in ratios["decision"].values()),
            {},
            differences({f"{name}, ratio": values for name, values in ratios["decision"].items()}, _at_most_twice),
        ),
    }


def _about_twice(ratios: Floats) -> bool | None:
    return all_hold([positive(ratios - 1.5), positive(3.0 - ratios)])


def _at_most_twice(ratios: Floats) -> bool | None:
    return positive(2.0 - ratios)


def _ratios(times: BySeed) -> dict[str, Floats]:
    """Return, by eta_pi and number of samples, the time of Tree-CAPI in units of that of Tree-FQI, one value per seed."""
    found = {}
    for (method, eta, n), own in times.items():
        fqi = times.get(("Tree-FQI", None, n), {})
        if method == "Tree-CAPI" and fqi:
            shared = sorted(own.keys() & fqi.keys())
            found[f"eta_pi {eta}, {n:,} samples"] = np.array([own[seed] / fqi[seed] for seed in shared])
    return found


def _means(steps: BySeed, method: str, eta_pi: int | None) -> dict[str, float]:
    """Return the mean steps of a method by number of samples."""
    return {
        str(n): float(np.mean(list(found.values())))
        for (m, eta, n), found in sorted(steps.items(), key=lambda item: item[0][2])
        if (m, eta) == (method, eta_pi)
    }


def _spread(by_seed: dict[int, float]) -> dict[int, float]:
    """Return how far each seed is from the median."""
    middle = float(np.median(list(by_seed.values()))) if by_seed else 0.0
    return {seed: abs(value - middle) for seed, value in by_seed.items()}


def _least_of(steps: BySeed, n: int, eta_pi: int) -> float | None:
    return min(steps.get(("Tree-CAPI", eta_pi, n), {}).values(), default=None)


def _over(steps: BySeed, case: Case, level: float) -> Floats:
    return np.array(list(steps.get(case, {}).values()), dtype=float) - level


def _both(first: Floats, second: Floats) -> Floats:
    return first - second if len(first) == len(second) else NONE


def _as_good(rollout: dict[int, float], others: Sequence[dict[int, float]], fewer: dict[int, float]) -> bool | None:
    """Return whether rollouts with the most samples are within `CLOSE` of the others, and with fewer are not."""
    as_good = [positive(paired(rollout, other) + MARGIN) for other in others]
    return all_hold([*as_good, positive(paired(others[0], fewer) - MARGIN)])
