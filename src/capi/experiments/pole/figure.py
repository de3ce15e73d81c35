"""Table, figures and the paper's claims as predicates, from the records of pole balancing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.statistics import all_hold, is_positive, standard_error
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
# With fewer seeds no claim is decided; otherwise 95 % t intervals of paired differences decide, or leave it open.
FEWEST_SEEDS = 5
SOLVED = 0.99 * MAX_STEPS
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
Steps = dict[Case, dict[int, float]]  # mean steps by seed


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
    """Return the paper's claims on pole balancing for each kind of track; with few runs they stay undecided."""
    found: dict[str, Claim] = {}
    for group in GROUPS:
        steps: Steps = {}
        for r in records:
            if r["group"] == group:
                steps.setdefault((r["method"], r["eta_pi"], r["n_samples"]), {})[r["seed"]] = r["steps"]
        if steps:
            found |= {f"{group}/{name}": claim for name, claim in _claims_of(steps).items()}
    return found


def _claims_of(steps: Steps) -> dict[str, Claim]:
    fqi, rollouts = _means(steps, "Tree-FQI", None), {eta: _means(steps, "Tree-DPI", eta) for eta in (20, 100, 500)}
    capi = {f"capi_{eta}": _means(steps, "Tree-CAPI", eta) for eta in (20, 500)}
    large = [("Tree-CAPI", eta, n) for eta in (20, 500) for n in SAMPLES if n > MANY]
    shared = [n for method, eta, n in steps if (method, eta) == ("Tree-CAPI", 20) and ("Tree-DPI", 20, n) in steps]
    return {
        "capi-solves-it-with-many-samples": Claim(
            f"With more than {MANY:,} samples, Tree-CAPI balances for {MAX_STEPS:,} steps (on average for at least 99 % of them).",
            WHERE,
            all_hold(_solves(steps, case) for case in large),
            capi,
        ),
        "capi-leads-with-few-samples": Claim(
            f"With {FEW:,} samples, Tree-CAPI balances for longer than Tree-FQI.",
            WHERE,
            all_hold(_longer(steps, ("Tree-CAPI", eta, FEW), ("Tree-FQI", None, FEW)) for eta in (20, 500)),
            {"tree_fqi": fqi, **capi},
        ),
        "rollouts-need-more-samples": Claim(
            "With the same number of samples, Tree-DPI balances for a shorter time than Tree-CAPI 20.",
            WHERE,
            all_hold(
                _longer(steps, ("Tree-CAPI", 20, n), ("Tree-DPI", eta, n)) for eta in (20, 100, 500) for n in shared
            ),
            {"tree_dpi": {str(eta): means for eta, means in rollouts.items()}, "capi_20": capi["capi_20"]},
        ),
    }


def _means(steps: Steps, method: str, eta_pi: int | None) -> dict[str, float]:
    """Return the mean steps of a method by number of samples."""
    return {
        str(n): float(np.mean(list(found.values())))
        for (m, eta, n), found in steps.items()
        if (m, eta) == (method, eta_pi)
    }


def _solves(steps: Steps, case: Case) -> bool | None:
    found = list(steps.get(case, {}).values())
    return bool(np.mean(found) >= SOLVED) if len(found) >= FEWEST_SEEDS else None


def _longer(steps: Steps, first: Case, second: Case) -> bool | None:
    """Return whether the first of two cases balances for longer, from the differences of paired seeds."""
    one, other = steps.get(first, {}), steps.get(second, {})
    differences = np.array([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])
    return is_positive(differences) if len(differences) >= FEWEST_SEEDS else None
