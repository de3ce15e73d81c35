"""Table, figures and the paper's claims as predicates, from the records of pole balancing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.statistics import all_hold, is_positive, standard_error
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.pole.settings import MAX_STEPS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("track_limit", "method", "eta_pi", "n_samples", "n_used", "seed", "steps", "return", "seconds")
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

Case = tuple[Any, ...]


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per run."""
    return [{name: "" if r[name] is None else r[name] for name in COLUMNS} for r in records]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per track, method and size of policy trees with the mean steps for each number of samples."""
    sizes = sorted({row["n_samples"] for row in rows})
    cases: dict[Case, dict[int, list[float]]] = {}
    for row in rows:
        of_case = cases.setdefault((row["track_limit"], row["method"], row["eta_pi"]), {})
        of_case.setdefault(row["n_samples"], []).append(row["steps"])
    lines = [
        ["none" if track == "" else f"{track:g} m", method, str(eta)]
        + [f"{np.mean(found[n]):.0f}" if n in found else "" for n in sizes]
        for (track, method, eta), found in cases.items()
    ]
    return (
        f"Pole balancing: mean steps, at most {MAX_STEPS:,}",
        ["track", "method", "eta_pi", *(f"{n}" for n in sizes)],
        lines,
    )


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure per kind of track: steps, return and learning time against the number of samples."""
    tracks = sorted({row["track_limit"] for row in rows}, key=str)
    quantities = {
        "steps": f"steps balanced (at most {MAX_STEPS:,})",
        "return": "discounted return",
        "seconds": "learning time in seconds",
    }
    found = {}
    for track in tracks:
        figure = matplotlib.figure.Figure(figsize=(11, 3.8), layout="constrained")
        figure.suptitle("Pole balancing, " + ("no track limit" if track == "" else f"track of +-{track:g} m"))
        for axes, (quantity, label) in zip(figure.subplots(1, 3), quantities.items(), strict=True):
            for (method, eta), (colour, marker, line) in STYLES.items():
                points: dict[int, list[float]] = {}
                for row in rows:
                    if (row["track_limit"], row["method"]) == (track, method) and row["eta_pi"] == (
                        "" if eta is None else eta
                    ):
                        points.setdefault(row["n_samples"], []).append(row[quantity])
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
            if quantity == "seconds":
                axes.set_yscale("log")
            axes.set_xlabel("samples")
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=len(STYLES), frameon=False)
        found["pole-no-track-limit.png" if track == "" else "pole-with-track-limit.png"] = figure
    return found


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the paper's claims on pole balancing for each kind of track; with few runs they stay undecided."""
    found = {}
    for track in (None, 2.4):
        steps: dict[Case, dict[int, float]] = {}
        for r in records:
            if r["track_limit"] == track:
                steps.setdefault((r["method"], r["eta_pi"], r["n_samples"]), {})[r["seed"]] = r["steps"]
        if not steps:
            continue
        decidable = min(len(of_seed) for of_seed in steps.values()) >= FEWEST_SEEDS
        means = {case: float(np.mean(list(of_seed.values()))) for case, of_seed in steps.items()}
        name = "no-track-limit" if track is None else "track-limit"

        def at(method: str, eta: int | None, means: dict[Case, float] = means) -> dict[str, float]:
            return {str(n): value for (m, e, n), value in means.items() if (m, e) == (method, eta)}

        capi = [at("Tree-CAPI", eta) for eta in (20, 500)]
        large = [value for of_size in capi for n, value in of_size.items() if int(n) > MANY]
        found[f"{name}/capi-solves-it-with-many-samples"] = Claim(
            f"With more than {MANY:,} samples, Tree-CAPI balances for {MAX_STEPS:,} steps (on average for at least 99 % of them).",
            WHERE,
            all(value >= SOLVED for value in large) if decidable and large else None,
            {"capi_20": capi[0], "capi_500": capi[1]},
        )

        def longer(first: Case, second: Case, steps: dict[Case, dict[int, float]] = steps) -> bool | None:
            """Return whether the first of two cases balances for longer, from the differences of paired seeds."""
            seeds = sorted(steps[first].keys() & steps[second].keys())
            return is_positive(np.array([steps[first][seed] - steps[second][seed] for seed in seeds]))

        few = [longer(("Tree-CAPI", eta, FEW), ("Tree-FQI", None, FEW)) for eta in (20, 500)] if decidable else []
        found[f"{name}/capi-leads-with-few-samples"] = Claim(
            f"With {FEW:,} samples, Tree-CAPI balances for longer than Tree-FQI.",
            WHERE,
            all_hold(few),
            {"tree_fqi": at("Tree-FQI", None), "capi_20": capi[0], "capi_500": capi[1]},
        )
        rollouts = {str(eta): at("Tree-DPI", eta) for eta in (20, 100, 500)}
        shared = [n for m, e, n in steps if (m, e) == ("Tree-CAPI", 20) and ("Tree-DPI", 20, n) in steps]
        ahead = [longer(("Tree-CAPI", 20, n), ("Tree-DPI", eta, n)) for eta in (20, 100, 500) for n in shared]
        found[f"{name}/rollouts-need-more-samples"] = Claim(
            "With the same number of samples, Tree-DPI balances for a shorter time than Tree-CAPI 20.",
            WHERE,
            all_hold(ahead) if decidable else None,
            {"tree_dpi": rollouts, "capi_20": capi[0]},
        )
    return found
