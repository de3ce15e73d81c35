"""Table, figures and the paper's claims as predicates, from the records of Mountain-Car."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import matplotlib
from capi._utils.statistics import all_hold, standard_error
from capi._utils.validation import Floats
from capi.experiments.comparison import Between, claim_of, differences, positive
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.mountain_car.settings import KAPPA, MAX_STEPS, SAMPLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = (
    "group",
    "method",
    "kappa",
    "n_samples",
    "seed",
    "steps",
    "return",
    "steps_mean_last",
    "return_mean_last",
    "n_goals",
    "learning_cpu_seconds",
)
TITLES = {
    "mean-loss": "lambda added to the mean loss",
    "sum-loss": "lambda added to the sum of losses",
}
WHERE = "Appendix, on Mountain-Car"
REASONABLE = 60.0  # steps; the word and the number are the paper's
MOST = 5_000  # samples: "a few thousand or even less"
FEW = 1_000  # largest number of samples that counts as small
BIG = 10.0  # steps: "a big difference"
QUANTITIES = {"steps": f"steps to the goal (at most {MAX_STEPS})", "return": "discounted return"}
LEVELS = {  # of a near-optimal policy, by value iteration on a grid of 800 x 600, and of a reasonable one
    "steps": (("near-optimal", 49.2, "-"), ("reasonable", REASONABLE, ":")),
    "return": (("near-optimal", -28.7, "-"),),
}
METHODS = {  # Okabe and Ito's palette, and markers that distinguish lines without colour
    None: ("RFQI", "#0072B2", "s", "--"),
    KAPPA: (f"KNN-CAPI, kappa = {KAPPA}", "#D55E00", "o", "-"),
}
SIZES = (("#CC79A7", "x"), ("#E69F00", "v"), ("#009E73", "^"), ("#56B4E9", "D"), ("#D55E00", "o"), ("#0072B2", "s"))

CHOOSING, JUDGING = slice(0, None, 2), slice(1, None, 2)  # every other seed

Case = tuple[int | None, int]  # kappa, None for RFQI, and the number of samples
Steps = dict[Case, Floats]  # (seeds,) each
NONE: Floats = np.empty(0)


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per run."""
    rows = []
    for r in records:
        lasts = {"steps_mean_last": r["last_steps"], "return_mean_last": r["last_returns"]}
        row = {**r, **{name: float(np.mean(values)) for name, values in lasts.items()}}
        rows.append({name: "" if row[name] is None else row[name] for name in COLUMNS})
    return rows


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per method and kappa with the mean steps and their standard error for each number of samples."""
    sizes = sorted({row["n_samples"] for row in rows})
    cases = {
        (row["group"], row["method"], row["kappa"]): _points(
            rows, "n_samples", "steps", group=row["group"], kappa=row["kappa"]
        )
        for row in rows
    }
    lines = [
        [group, method, str(kappa), str(max(len(values) for values in found.values()))]
        + [_short(found[n]) if n in found else "" for n in sizes]
        for (group, method, kappa), found in cases.items()
    ]
    title = f"Mountain-Car: mean steps to the goal, at most {MAX_STEPS} (s.e. over runs)"
    return title, ["group", "method", "kappa", "runs", *(f"{n}" for n in sizes)], lines


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return steps and return against the number of samples, and against kappa, for each reading of lambda."""
    found = {}
    for group, title in TITLES.items():
        chosen = [row for row in rows if row["group"] == group]
        neighbours = [row for row in chosen if row["kappa"] != ""]
        if chosen:
            found[f"mountain-car-samples-{group}.png"] = _against_samples(chosen, title)
        if neighbours:
            found[f"mountain-car-kappa-{group}.png"] = _against_kappa(neighbours, title)
    return found


def _against_samples(rows: Sequence[Row], title: str) -> Figure:
    lines = [("" if kappa is None else kappa, *style) for kappa, style in METHODS.items()]
    figure = _figure(f"Mountain-Car: value-based learning and nearest-neighbour policies, {title}")
    for axes, quantity in zip(figure.axes, QUANTITIES, strict=True):
        for kappa, *style in lines:
            _draw(axes, _points(rows, "n_samples", quantity, kappa=kappa), *style)
        _finish(axes, "samples", quantity, sorted({row["n_samples"] for row in rows}))
    return _with_legend(figure)


def _against_kappa(rows: Sequence[Row], title: str) -> Figure:
    sizes = sorted({row["n_samples"] for row in rows})
    figure = _figure(f"Mountain-Car: KNN-CAPI with different numbers of neighbours, {title}")
    for axes, quantity in zip(figure.axes, QUANTITIES, strict=True):
        for n, (colour, marker) in zip(sizes, SIZES, strict=False):
            _draw(axes, _points(rows, "kappa", quantity, n_samples=n), f"{n} samples", colour, marker, "-")
        _finish(axes, "kappa: number of neighbours", quantity, sorted({row["kappa"] for row in rows}))
    return _with_legend(figure)


def _figure(title: str) -> Figure:
    figure = matplotlib.figure.Figure(figsize=(9, 4.2), layout="constrained")
    figure.suptitle(title)
    figure.subplots(1, len(QUANTITIES))
    return figure


def _draw(axes: Axes, points: dict[int, list[float]], label: str, colour: str, marker: str, line: str) -> None:
    """Draw the mean of each point with one standard error."""
    places = sorted(points)
    means = [np.mean(points[place]) for place in places]
    errors = [np.nan_to_num(standard_error(np.array(points[place]))) for place in places]
    style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": line, "markersize": 5, "capsize": 2}
    axes.errorbar(places, means, yerr=errors, label=label, **style)


def _finish(axes: Axes, label: str, quantity: str, ticks: Sequence[int]) -> None:
    for name, level, line in LEVELS[quantity]:
        axes.axhline(level, color="0.4", linestyle=line, linewidth=1, label=name)
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick}" for tick in ticks], rotation=45 if len(ticks) > 6 else 0)
    axes.minorticks_off()
    axes.margins(x=0.08)
    axes.set_xlabel(label)
    axes.set_ylabel(QUANTITIES[quantity])
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _with_legend(figure: Figure) -> Figure:
    entries = list(zip(*figure.axes[0].get_legend_handles_labels(), strict=True))
    n_levels = len(LEVELS["steps"])  # these come first, because they have no error bars
    entries = entries[n_levels:] + entries[:n_levels]
    figure.legend(*zip(*entries, strict=True), loc="outside lower center", ncols=4, frameon=False)
    return figure


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the paper's claims on Mountain-Car for each reading of lambda; with few runs they stay undecided."""
    found: dict[str, Claim] = {}
    for group in TITLES:
        by_seed: dict[Case, dict[int, float]] = {}
        for r in records:
            if r["group"] == group:
                by_seed.setdefault((r["kappa"], r["n_samples"]), {})[r["seed"]] = r["steps"]
        complete = set.intersection(*(set(values) for values in by_seed.values())) if by_seed else set()
        steps = {case: np.array([values[seed] for seed in sorted(complete)]) for case, values in by_seed.items()}
        named = {**_methods(steps), **_neighbours(steps)} if complete else {**_methods({}), **_neighbours({})}
        found |= {f"{group}/{name}": claim for name, claim in named.items()}
    return found


def _methods(steps: Steps) -> dict[str, Claim]:
    """Return the claims about RFQI and KNN-CAPI with the paper's kappa."""
    rfqi, capi = ({n: found for (case, n), found in steps.items() if case == kappa} for kappa in METHODS)
    sizes = sorted(rfqi.keys() & capi.keys())
    gains = {n: rfqi[n] - capi[n] for n in sizes}
    few, many = ([gain for n, gain in gains.items() if (n <= FEW) is small] for small in (True, False))
    reasonable = [np.mean([found[n] < REASONABLE for n in sizes], axis=0) if sizes else [] for found in (rfqi, capi)]
    return {
        "both-learn-a-reasonable-policy": Claim(
            f"RFQI and KNN-CAPI need fewer than {REASONABLE:g} steps at some number of samples up to {MOST:,}.",
            WHERE,
            all_hold(_gets_reasonable(found) for found in (rfqi, capi)),
            {"rfqi": _means(rfqi), "knn_capi": _means(capi)},
            differences(
                {
                    f"{REASONABLE:g} - {name}, {n:,} samples": REASONABLE - found[n]
                    for name, found in (("RFQI", rfqi), ("KNN-CAPI", capi))
                    for n in found
                    if n <= MOST
                }
            ),
            units=tuple(_gets_reasonable(found) for found in (rfqi, capi)),
        ),
        "capi-leads": Claim(
            "KNN-CAPI takes fewer steps than RFQI at every number of samples.",
            WHERE,
            all_hold(positive(gain) for gain in gains.values()),
            {"gain": _means(gains)},
            differences({f"{n:,} samples": gain for n, gain in gains.items()}),
        ),
        "capi-leads-most-with-few-samples": Claim(
            f"On average, its lead is larger with up to {FEW:,} samples than with more.",
            WHERE,
            positive(np.mean(few, axis=0) - np.mean(many, axis=0)) if few and many else None,
            {"gain_with_few": _mean(few), "gain_with_many": _mean(many)},
            differences({"few - many": np.mean(few, axis=0) - np.mean(many, axis=0)}) if few and many else {},
        ),
        "capi-is-reasonable-more-often": Claim(
            f"Over all numbers of samples, more runs of KNN-CAPI than of RFQI take fewer than {REASONABLE:g} steps.",
            WHERE,
            positive(reasonable[1] - reasonable[0]) if sizes else None,
            {"share_of_runs": dict(zip(("rfqi", "knn_capi"), map(_mean, reasonable), strict=True))},
            differences({"share of runs": reasonable[1] - reasonable[0]}) if sizes else {},
        ),
    }


def _neighbours(steps: Steps) -> dict[str, Claim]:
    """Return the claims about the number of neighbours."""
    by_size: dict[int, dict[int, Floats]] = {}
    for kappa, n in sorted((kappa, n) for kappa, n in steps if kappa is not None):
        by_size.setdefault(n, {})[kappa] = steps[kappa, n]
    numbers = {str(n): _means(by_size[n]) for n in sorted(by_size)}
    return {
        "kappa-makes-a-big-difference-with-few-samples": Claim(
            f"With {FEW:,} samples or fewer, the worst kappa takes at least {BIG:g} steps more than the best.",
            WHERE,
            all_hold(_differ(found, BIG) for n, found in by_size.items() if n <= FEW),
            numbers,
            differences(
                {f"worst - best, {n:,} samples": _extremes(found) for n, found in by_size.items() if n <= FEW},
                Between(BIG),
            ),
        ),
        "kappa-makes-a-difference-with-many-samples": Claim(
            f"With more than {FEW:,} samples, too, the worst kappa takes more steps than the best.",
            WHERE,
            all_hold(_differ(found, 0.0) for n, found in by_size.items() if n > FEW),
            numbers,
            differences({f"worst - best, {n:,} samples": _extremes(found) for n, found in by_size.items() if n > FEW}),
        ),
        "kappa-has-an-optimum": Claim(
            "At each number of samples, some kappa takes fewer steps than both the smallest and the largest kappa.",
            WHERE,
            all_hold(_has_optimum(found) for found in by_size.values()),
            numbers,
            differences(
                {
                    f"kappa {end} - best, {n:,} samples": values
                    for n, found in by_size.items()
                    for end, values in _over_the_best(found).items()
                }
            ),
            units=tuple(_has_optimum(found) for found in by_size.values()),  # both ends together
        ),
        "the-chosen-kappa-is-a-good-one": claim_of(
            f"With kappa = {KAPPA} the steps are fewer than {BIG:g} more than with the best kappa, at each number of samples.",
            WHERE,
            {
                f"kappa {KAPPA} - best, {n:,} samples": _behind_the_best(by_size[n]) if n in by_size else NONE
                for n in SAMPLES
                if n >= 2 * KAPPA
            },
            Between(high=BIG),
        ),
    }


def _gets_reasonable(by_size: dict[int, Floats]) -> bool | None:
    """Return whether the mean is below 60 steps at some number of samples."""
    verdicts = [positive(REASONABLE - found) for n, found in by_size.items() if n <= MOST]
    return True if True in verdicts else None if None in verdicts or not verdicts else False


def _differ(by_kappa: dict[int, Floats], least: float) -> bool | None:
    """Return whether the worst and the best kappa differ by at least ``least`` steps."""
    return positive(_extremes(by_kappa) - least)


def _extremes(by_kappa: dict[int, Floats]) -> Floats:
    """Return the steps of the worst kappa minus those of the best.

    Half of the seeds select the two and the other half give the difference, because the extremes of many noisy means always differ.
    """
    order = sorted(by_kappa, key=lambda kappa: by_kappa[kappa][CHOOSING].mean())
    return np.asarray((by_kappa[order[-1]] - by_kappa[order[0]])[JUDGING])


def _has_optimum(by_kappa: dict[int, Floats]) -> bool | None:
    """Return whether the best interior kappa beats both ends."""
    return all_hold(positive(values) for values in _over_the_best(by_kappa).values())


def _over_the_best(by_kappa: dict[int, Floats]) -> dict[int, Floats]:
    """Return the steps of the smallest and of the largest kappa minus those of the best between, selected on half of the seeds."""
    if len(by_kappa) < 3:
        return {}
    first, *between, last = by_kappa
    best = min(between, key=lambda kappa: by_kappa[kappa][CHOOSING].mean())
    return {end: (by_kappa[end] - by_kappa[best])[JUDGING] for end in (first, last)}


def _behind_the_best(by_kappa: dict[int, Floats]) -> Floats:
    """Return the steps with the paper's kappa minus those of the best one, selected on half of the seeds."""
    if KAPPA not in by_kappa or len(by_kappa) < 2:
        return NONE
    best = min(by_kappa, key=lambda kappa: by_kappa[kappa][CHOOSING].mean())
    return np.asarray((by_kappa[KAPPA] - by_kappa[best])[JUDGING])


def _mean(values: Sequence[Floats] | Floats) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _means(found: dict[int, Floats]) -> dict[str, float]:
    return {str(key): float(values.mean()) for key, values in found.items()}


def _points(rows: Iterable[Row], place: str, quantity: str, **where: Any) -> dict[int, list[float]]:
    """Return the values of ``quantity`` by ``place`` for the rows that match ``where``."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if all(row[name] == value for name, value in where.items()):
            found.setdefault(row[place], []).append(row[quantity])
    return found


def _short(values: Sequence[float]) -> str:
    error = standard_error(np.array(values))
    return f"{np.mean(values):.0f}" + ("" if np.isnan(error) else f" ({error:.1f})")
