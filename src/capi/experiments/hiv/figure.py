"""Table, figure and the paper's claims as predicates, from the records of HIV treatment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.statistics import standard_error
from capi.experiments.comparison import Between, Moved, claim_of, paired
from capi.experiments.experiment import SIZES, Claim, Record, Row
from capi.experiments.hiv.settings import settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = (
    "group",
    "method",
    "eta_pi",
    "seed",
    "return",
    "return_mean_last",
    "n_transitions",
    "learning_cpu_seconds",
    "decision_cpu_seconds",
)
TITLES = {
    "own": "each method collects its own data",
    "shared": "all methods learn from one batch",
    "own-eta_v-5": "own data, eta_v = 5",
    "own-new-trees": "own data, new trees in every sweep",
    "embedded": "the embedded batch",
}
WHERE = "Section 5.2, figure on HIV treatment"
SMALL, LARGE = (2, 100), 1000  # eta_pi range in which CAPI is better, and from which it is poor, according to the paper
GAIN = 0.24  # "up to 24 %"
SAME = 2.0  # a factor between sizes of trees that is too small to matter
EARLY = 3  # rounds with few transitions, and as many with the most


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per run: the return and the costs of its last round."""
    return [
        {
            "group": r["group"],
            "method": "Tree-FQI" if r["eta_pi"] is None else "Tree-CAPI",
            "eta_pi": "" if r["eta_pi"] is None else r["eta_pi"],
            "seed": r["seed"],
            "return": r["returns"][-1],
            "return_mean_last": float(np.mean(r["last_returns"][-1])),
            "n_transitions": r["n_transitions"],
            "learning_cpu_seconds": r["learning_cpu_seconds"][-1],
            "decision_cpu_seconds": r["decision_cpu_seconds"][-1],
        }
        for r in records
    ]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per method with the mean and standard error of its returns."""
    headings = ["group", "method", "eta_pi", "mean return", "s.e.", "runs"]
    lines = []
    for (group, method, eta), values in _cases(rows).items():
        error = standard_error(np.array(values))
        lines.append(
            [
                group,
                method,
                str(eta),
                f"{np.mean(values):.4g}",
                "" if np.isnan(error) else f"{error:.2g}",
                str(len(values)),
            ]
        )
    return "HIV treatment: discounted return over 5000 days from the unhealthy state", headings, lines


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return the paper's figure: return against eta_pi with Tree-FQI as a band, one panel per group of settings."""
    groups = [group for group in TITLES if any(row["group"] == group for row in rows)]
    n_columns = min(len(groups), 2)
    n_rows = -(-len(groups) // n_columns)
    figure = matplotlib.figure.Figure(figsize=(4.6 * n_columns + 0.6, 3.6 * n_rows + 0.4), layout="constrained")
    figure.suptitle("HIV treatment: return over 5000 days")
    panels = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
    for axes, group in zip(panels.flat, groups, strict=False):
        _draw(axes, [row for row in rows if row["group"] == group])
        axes.set_title(TITLES[group], fontsize="medium")
        axes.legend(frameon=False)
    panels[0, 0].set_ylim(bottom=0)  # of all panels, and only now: it fixes the upper end, too
    for axes in panels.flat[len(groups) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("discounted return (mean, one s.e.)")
    return {"hiv-return.png": figure}


def _draw(axes: Axes, rows: Sequence[Row]) -> None:
    cases = {(method, eta): np.array(values) for (_, method, eta), values in _cases(rows).items()}
    if ("Tree-FQI", "") in cases:
        fqi = cases["Tree-FQI", ""]
        middle, error = fqi.mean(), np.nan_to_num(standard_error(fqi))
        axes.axhspan(middle - error, middle + error, color="#0072B2", alpha=0.25, linewidth=0)
        axes.axhline(middle, color="#0072B2", linestyle="--", label="Tree-FQI")
    etas = sorted(eta for _, eta in cases if eta != "")
    means = [cases["Tree-CAPI", eta].mean() for eta in etas]
    errors = [np.nan_to_num(standard_error(cases["Tree-CAPI", eta])) for eta in etas]
    if etas:
        axes.errorbar(etas, means, yerr=errors, color="#D55E00", marker="o", capsize=3, label="Tree-CAPI")
    axes.set_xscale("log")
    axes.set_xticks(etas, [f"{eta}" for eta in etas], rotation=45)
    axes.minorticks_off()
    axes.set_xlabel("eta_pi: smallest node of a policy tree that may split")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the paper's claims on HIV treatment for each group of settings; with few runs they stay undecided."""
    returns: dict[str, dict[int | None, dict[int, float]]] = {}
    for r in records:
        returns.setdefault(r["group"], {}).setdefault(r["eta_pi"], {})[r["seed"]] = r["returns"][-1]
    found: dict[str, Claim] = {}
    for group in (group for group in TITLES if group in returns or group != "embedded"):  # the quick size
        found |= {f"{group}/{name}": claim for name, claim in _claims_of(group, returns.get(group, {})).items()}
    return found | _trend(records)


def _claims_of(group: str, by_eta: dict[int | None, dict[int, float]]) -> dict[str, Claim]:
    """Return the claims of a group, from the differences of paired seeds; only those on sizes that its settings have."""
    fqi = by_eta.get(None, {})
    gains = {eta: paired(by_eta.get(eta, {}), fqi) for eta in _etas_of(group)}
    base = float(np.mean(list(fqi.values()))) if fqi else None
    relative = {eta: float(gain.mean() / base) for eta, gain in gains.items() if len(gain) and base}
    small = [eta for eta in gains if SMALL[0] <= eta <= SMALL[1]]
    large = [eta for eta in gains if eta >= LARGE]
    best = max((eta for eta in small if eta in relative), key=lambda eta: relative[eta], default=None)
    percent = {"largest gain in percent": np.empty(0)}
    if best is not None and base:
        percent = {f"gain with eta_pi {best} in percent": 100 * gains[best] / base}
    made = {
        "capi-better-with-small-nodes": claim_of(
            f"Tree-CAPI has a higher return than Tree-FQI for every eta_pi from {SMALL[0]} to {SMALL[1]}.",
            WHERE,
            {f"eta_pi {eta}": gains[eta] for eta in small},
            numbers={
                "n_seeds": {str(eta): len(gain) for eta, gain in gains.items()},
                "tree_fqi": base,
                "relative_gain_of_capi": {str(eta): gain for eta, gain in relative.items()},
            },
        ),
        "gain-of-about-24-percent": claim_of(
            f"The largest gain among these is about {GAIN:.0%} (between half and twice that).",
            WHERE,
            percent,
            Between(100 * GAIN / 2, 2 * 100 * GAIN),
            numbers={"eta_pi": best, "largest_relative_gain": None if best is None else relative[best]},
        ),
    }
    if large:
        made["poor-with-large-nodes"] = claim_of(
            f"With eta_pi of {LARGE:,} or more, Tree-CAPI has a lower return than Tree-FQI.",
            WHERE,
            {f"eta_pi {eta}": -gains[eta] for eta in large},
            numbers={"relative_gain": {str(eta): relative[eta] for eta in large if eta in relative}},
        )
    return made


def _trend(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the claims on what the best size of policy trees depends on: the number of transitions, from the rounds of the paper's protocol."""
    by_seed: dict[int, dict[int, list[float]]] = {}
    for r in records:
        if r["group"] == "own" and r["eta_pi"] is not None:
            by_seed.setdefault(r["seed"], {})[r["eta_pi"]] = r["returns"]
    complete = [by_eta for by_eta in by_seed.values() if len(by_eta) == len(_etas_of("own"))]
    early, late = slice(None, EARLY), slice(-EARLY, None)
    moved = np.array([_best_size(by_eta, early) - _best_size(by_eta, late) for by_eta in complete], dtype=float)
    return {
        "own/best-size-depends-on-the-number-of-transitions": claim_of(
            f"The eta_pi with the highest return is not the same in the first {EARLY} rounds as in the last {EARLY}; the claim fails if the whole "
            f"interval lies within a factor of {SAME:g}.",
            WHERE,
            {"log10 of the best eta_pi, first - last rounds": moved},
            Moved(float(np.log10(SAME))),
        ),
        "own/best-size-depends-on-the-difficulty": Claim(
            "The eta_pi with the highest return is not the same for problems of different difficulty.", WHERE, None, {}
        ),
    }


def _best_size(by_eta: dict[int, list[float]], rounds: slice) -> float:
    return float(np.log10(max(by_eta, key=lambda eta: np.mean(np.log(by_eta[eta][rounds])))))


def _etas_of(group: str) -> list[int]:
    """Return the values of eta_pi that a group of settings has."""
    values = [setting.values for size in SIZES for setting in settings(size)]
    return [one["eta_pi"] for one in values if one["group"] == group and one["eta_pi"] is not None]


def _cases(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[float]]:
    cases: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        cases.setdefault((row["group"], row["method"], row["eta_pi"]), []).append(row["return"])
    return cases
