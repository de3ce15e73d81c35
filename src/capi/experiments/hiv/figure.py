"""Table, figure and the paper's claims as predicates, from the records of HIV treatment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.statistics import all_hold, is_positive, standard_error
from capi.experiments.experiment import Claim, Record, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = ("data", "seed", "method", "eta_pi", "return", "n_transitions")
WHERE = "Section 5.2, figure on HIV treatment"
SMALL, LARGE = (2, 100), 1000  # eta_pi range in which CAPI is better, and from which it is poor, according to the paper
GAIN = 0.24  # "up to 24 %"
# With fewer seeds no claim is decided; otherwise 95 % t intervals of paired differences decide, or leave it open.
FEWEST_SEEDS = 5


def table(records: Sequence[Record]) -> list[Row]:
    """Return the final return of each run, one row per method and seed."""
    rows = []
    for r in records:
        results = (
            [(r["eta_pi"], r["returns_by_round"][-1])]
            if r["data"] == "own"
            else zip(r["methods"], r["returns"], strict=True)
        )
        for eta, value in results:
            rows.append(
                {
                    "data": r["data"],
                    "seed": r["seed"],
                    "method": "Tree-FQI" if eta is None else "Tree-CAPI",
                    "eta_pi": "" if eta is None else eta,
                    "return": value,
                    "n_transitions": r["n_transitions"],
                }
            )
    return rows


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per method with the mean and standard error of its returns."""
    headings = ["data", "method", "eta_pi", "mean return", "s.e.", "runs"]
    lines = []
    for (data, method, eta), values in _cases(rows).items():
        error = standard_error(np.array(values))
        lines.append(
            [
                data,
                method,
                str(eta),
                f"{np.mean(values):.4g}",
                "" if np.isnan(error) else f"{error:.2g}",
                str(len(values)),
            ]
        )
    return "HIV treatment: discounted return over 5000 days from the unhealthy state", headings, lines


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return the paper's figure: return against eta_pi with Tree-FQI as a band, one panel per kind of data."""
    kinds = [kind for kind in ("own", "shared") if any(row["data"] == kind for row in rows)]
    figure = matplotlib.figure.Figure(figsize=(4.6 * len(kinds) + 0.6, 4.0), layout="constrained")
    figure.suptitle("HIV treatment: return over 5000 days")
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    titles = {"own": "each method collects its own data", "shared": "all methods learn from one batch"}
    for axes, kind in zip(panels, kinds, strict=True):
        _draw(axes, [row for row in rows if row["data"] == kind])
        axes.set_title(titles[kind], fontsize="medium")
    panels[0].set_ylabel("discounted return (mean, one s.e.)")
    panels[-1].legend(frameon=False)
    return {"hiv-return.png": figure}


def _draw(axes: Axes, rows: Sequence[Row]) -> None:
    cases = {(method, eta): np.array(values) for (_, method, eta), values in _cases(rows).items()}
    fqi = cases["Tree-FQI", ""]
    middle, error = fqi.mean(), np.nan_to_num(standard_error(fqi))
    etas = sorted(eta for _, eta in cases if eta != "")
    means = [cases["Tree-CAPI", eta].mean() for eta in etas]
    errors = [np.nan_to_num(standard_error(cases["Tree-CAPI", eta])) for eta in etas]
    axes.axhspan(middle - error, middle + error, color="#0072B2", alpha=0.25, linewidth=0)
    axes.axhline(middle, color="#0072B2", linestyle="--", label="Tree-FQI")
    axes.errorbar(etas, means, yerr=errors, color="#D55E00", marker="o", capsize=3, label="Tree-CAPI")
    axes.set_xscale("log")
    axes.set_xticks(etas, [f"{eta}" for eta in etas], rotation=45)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("eta_pi: smallest node of a policy tree that may split")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the paper's claims on HIV treatment for each kind of data; with few runs they stay undecided."""
    rows, found = table(records), {}
    for kind in ("own", "shared"):
        chosen = [row for row in rows if row["data"] == kind]
        if not chosen:
            continue
        by_seed: dict[Any, dict[Any, float]] = {}
        for row in chosen:
            by_seed.setdefault(row["eta_pi"], {})[row["seed"]] = row["return"]
        fqi = by_seed.pop("")
        seeds = sorted(fqi)
        gains = {
            eta: np.array([values[s] - fqi[s] for s in seeds if s in values]) for eta, values in sorted(by_seed.items())
        }
        relative = {eta: float(gain.mean() / np.mean(list(fqi.values()))) for eta, gain in gains.items()}
        decidable = len(seeds) >= FEWEST_SEEDS
        small = [eta for eta in gains if SMALL[0] <= eta <= SMALL[1]]
        large = [eta for eta in gains if eta >= LARGE]
        numbers: dict[str, Any] = {
            "n_seeds": len(seeds),
            "tree_fqi": float(np.mean(list(fqi.values()))),
            "relative_gain_of_capi": {str(eta): gain for eta, gain in relative.items()},
            "standard_errors_of_gains": {str(eta): standard_error(gain) for eta, gain in gains.items()},
        }
        base = numbers["tree_fqi"]
        found[f"{kind}/capi-better-with-small-nodes"] = Claim(
            f"Tree-CAPI has a higher return than Tree-FQI for every eta_pi from {SMALL[0]} to {SMALL[1]}.",
            WHERE,
            all_hold(is_positive(gains[eta]) for eta in small) if decidable else None,
            numbers,
        )
        largest = max(small, key=lambda eta: relative[eta], default=None)
        found[f"{kind}/gain-of-about-24-percent"] = Claim(
            f"The largest gain among these is about {GAIN:.0%} (between half and twice that).",
            WHERE,
            all_hold(is_positive(x) for x in (gains[largest] - GAIN / 2 * base, 2 * GAIN * base - gains[largest]))
            if decidable and largest is not None
            else None,
            {"eta_pi": largest, "largest_relative_gain": None if largest is None else relative[largest]},
        )
        found[f"{kind}/poor-with-large-nodes"] = Claim(
            f"With eta_pi of {LARGE:,} or more, Tree-CAPI has a lower return than Tree-FQI.",
            WHERE,
            all_hold(is_positive(-gains[eta]) for eta in large) if decidable else None,
            {"relative_gain": {str(eta): relative[eta] for eta in large}},
        )
    return found


def _cases(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[float]]:
    cases: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        cases.setdefault((row["data"], row["method"], row["eta_pi"]), []).append(row["return"])
    return cases
